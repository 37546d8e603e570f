"""The embedded log against plain files, in one run, on data it makes.

    python bench/log.py [--quick] [--only append]

append   records of 100 bytes in batches of 10,000, each forced to disk    rival: the same batches in an Arrow stream

Each side and its rival take turns; the ratio is that of their medians. The last line is JSON.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from _sections import Bench, Verdict, run

from headrace.log import Log, Producer, Topic

SIZE = 100  # bytes of a record


def in_turn(bench: Bench, rounds: int, *sides: tuple[str, Callable[[], float]]) -> list[float]:
    """Lets the sides take turns, and tells the median of each; the first round warms them up."""
    told: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for (_, side), held in zip(sides, told, strict=True):
            held.append(side())
    medians = [statistics.median(held[1:]) for held in told]
    for (name, _), median, held in zip(sides, medians, told, strict=True):
        bench.say(f"{name:34} {median:12,.0f}/s   of {[round(each) for each in held[1:]]}")
    return medians


# Appending


def append(bench: Bench) -> Iterator[Verdict]:
    count, size, rounds = (20, 10_000, 3) if bench.quick else (100, 10_000, 7)
    octets = np.random.default_rng(1).bytes(count * size * SIZE)
    records = [octets[at : at + SIZE] for at in range(0, len(octets), SIZE)]
    log = Log(bench.folder)
    schema = log.create("schema", values="bytes")
    parts = [records[at : at + size] for at in range(0, len(records), size)]
    batches = [schema.batch(list(part), timestamps=list(range(size))) for part in parts]
    names = iter(range(1_000_000))

    def timed(work: Callable[[Topic], None]) -> float:
        name = f"topic-{next(names)}"
        topic = log.create(name, values="bytes")
        begun = time.perf_counter()
        work(topic)
        taken = time.perf_counter() - begun
        log.delete(name)
        return len(records) / taken

    def appended(topic: Topic) -> None:
        for batch in batches:
            topic.append(0, batch)

    def sent(topic: Topic) -> None:
        with Producer(topic, batch=size) as producer:
            for record in records:
                producer.send(record)

    def sent_by_key(topic: Topic) -> None:
        with Producer(topic, batch=size) as producer:
            for number, record in enumerate(records):
                producer.send(record, key=b"user%d" % (number % 1000))

    def written() -> float:
        path = bench.folder / "stream.arrow"
        begun = time.perf_counter()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema.schema) as writer:
            descriptor = os.open(path, os.O_RDWR)
            for batch in batches:
                writer.write_batch(batch)
                os.fsync(descriptor)
            os.close(descriptor)
        taken = time.perf_counter() - begun
        path.unlink()
        return len(records) / taken

    ours, rival, by_record, _ = in_turn(
        bench,
        rounds,
        ("batches to a topic", lambda: timed(appended)),
        ("the same to an Arrow stream", written),
        ("record by record, Producer.send", lambda: timed(sent)),
        ("the same, with keys", lambda: timed(sent_by_key)),
    )
    remedy = "checksums and fsync; a profile of Segment.append tells which"
    yield Verdict("append against an Arrow stream", ours / rival, 0.5, True, remedy)
    yield Verdict("append, thousand records/s", ours / 1000, 300, True, remedy)
    yield Verdict("send, thousand records/s", by_record / 1000, 300, True, "a call for each record, in Python")


if __name__ == "__main__":
    run("log", __doc__, append)
