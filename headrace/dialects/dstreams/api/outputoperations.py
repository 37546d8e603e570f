"""Output operations: printing the first elements, and directories of text, each written once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark import RDD

from headrace.engine.spark.files import Folder
from headrace.engine.spark.session import spark_session


def take_and_print(num: int) -> Callable[[datetime, RDD[Any]], None]:
    """Returns a function that prints the first elements of an RDD."""

    def pprint(time: datetime, rdd: RDD[Any]) -> None:
        taken = rdd.take(num + 1)
        rule = "-------------------------------------------"
        lines = [rule, f"Time: {time}", rule, *map(str, taken[:num]), *(["..."] if len(taken) > num else []), ""]
        print("\n".join(lines), flush=True)

    return pprint


def save_as_text_file(prefix: str, suffix: str | None) -> Callable[[datetime, RDD[Any]], None]:
    """Returns a function that writes an RDD to the directory of its batch, unless that is complete already.

    A directory that an interrupted batch left is incomplete: Spark writes _SUCCESS last.
    """

    def saveAsTextFiles(time: datetime, rdd: RDD[Any]) -> None:
        path = file_name(prefix, suffix, time)
        folder = Folder(spark_session(), path)
        if folder.exists("_SUCCESS"):
            return
        if folder.exists():
            folder.delete()
        rdd.saveAsTextFile(path)

    return saveAsTextFiles


def file_name(prefix: str, suffix: str | None, time: datetime) -> str:
    """Returns the name of a batch's directory, with its time in milliseconds.

    >>> file_name("counts", "txt", datetime.fromtimestamp(12345678.910))
    'counts-12345678910.txt'
    """
    name = f"{prefix}-{round(time.timestamp() * 1000)}"
    return name if suffix is None else f"{name}.{suffix}"
