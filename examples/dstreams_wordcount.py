"""Word count as it is written for pyspark.streaming, with the import changed: lines from a socket, windows and totals.

    python examples/dstreams_wordcount.py [SECONDS]

A server in this process sends lines. Each second prints the most frequent words of the last three seconds; in the end
the totals are compared with a recount in plain Python. Nothing is lost if it is killed: with a checkpoint directory,
`StreamingContext.getOrCreate` continues with the interval that was interrupted.
"""

import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from operator import add, sub

from pyspark import SparkContext

from headrace.dstreams import StreamingContext
from headrace.engine.spark.session import spark_session

SENTENCES = [
    "the wheel turns and the stone grinds the corn",
    "the water comes down the headrace to the wheel",
    "the corn becomes flour",
]


def serve(server: socket.socket, seconds: float, sent: Counter[str]) -> None:
    """Sends random sentences to whoever connects, and counts their words."""
    connection, _ = server.accept()
    choose = random.Random(1).choice
    end = time.monotonic() + seconds
    with connection:
        while time.monotonic() < end:
            sentence = choose(SENTENCES)
            connection.sendall(f"{sentence}\n".encode())
            sent.update(sentence.split())
            time.sleep(0.01)


def run(sc: SparkContext, seconds: float) -> tuple[dict[str, int], Counter[str]]:
    """Counts for some seconds; returns what the stream counted, and what was sent."""
    sent: Counter[str] = Counter()
    counted: dict[str, int] = {}
    server = socket.create_server(("127.0.0.1", 0))
    sender = threading.Thread(target=serve, args=(server, seconds, sent))
    sender.start()

    ssc = StreamingContext(sc, batchDuration=1)
    ssc.checkpoint(tempfile.mkdtemp(prefix="dstreams-"))
    lines = ssc.socketTextStream("127.0.0.1", server.getsockname()[1])
    words = lines.flatMap(str.split).map(lambda word: (word, 1))
    recent = words.reduceByKeyAndWindow(add, sub, 3, 1)
    recent.transform(lambda rdd: rdd.sortBy(lambda pair: (-pair[1], pair[0]))).pprint(3)
    totals = words.updateStateByKey(lambda values, total: sum(values) + (total or 0))
    totals.foreachRDD(lambda rdd: counted.update(rdd.collect()))
    ssc.start()
    sender.join()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    server.close()
    return counted, sent


def main(seconds: float = 10) -> None:
    counted, sent = run(spark_session().sparkContext, seconds)
    assert counted == sent, (counted, sent)
    print(f"{sum(counted.values())} words were counted, as many as were sent of each: {dict(sent.most_common(3))} ...")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
