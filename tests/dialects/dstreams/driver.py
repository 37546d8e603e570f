"""The program that tests kill: saves the lines of files or of a socket, with either module.

    python -m tests.dialects.dstreams.driver FOLDER MODULE [PORT]

One of its functions kills the process group when it sees the line "kill", the first time.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from headrace.engine.spark.session import spark_session


def killing(folder: str, group: int) -> Any:
    def pass_on(line: str) -> str:
        if line == "kill":
            try:
                Path(folder, "killed").touch(exist_ok=False)
            except FileExistsError:
                return line
            os.killpg(group, signal.SIGKILL)
            time.sleep(60)  # this worker ends with the JVM
        return line

    return pass_on


def main(folder: str, module: str, port: str = "0") -> None:
    warnings.simplefilter("ignore", FutureWarning)
    package = importlib.import_module(module)
    spark = spark_session("local[2]", {"spark.log.level": "ERROR"})
    group = os.getpgrp()

    def setup() -> Any:
        ssc = package.StreamingContext(spark.sparkContext, 1)
        lines = ssc.textFileStream(f"{folder}/in") if port == "0" else ssc.socketTextStream("127.0.0.1", int(port))
        lines.repartition(1).map(killing(folder, group)).saveAsTextFiles(f"{folder}/out")
        return ssc

    ssc = package.StreamingContext.getOrCreate(f"{folder}/checkpoint", setup)
    ssc.start()
    Path(folder, "ready").touch()
    while not Path(folder, "stop").exists():
        ssc.awaitTerminationOrTimeout(0.2)
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
