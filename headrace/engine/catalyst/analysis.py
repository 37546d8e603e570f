"""Spark's refusals of expressions and schemas, in words that a user of pipelines knows, and without its log lines."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from headrace.model.knowncolumns import no_column

_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION: Final = re.compile(r"^\[[\w.]+\]\s*")


def analysis_message(error: PySparkException, columns: Sequence[str] = ()) -> str:
    """Returns what Spark refused, on one line; of a column that there is not, the nearest one of `columns`."""
    parameters = error.getMessageParameters() or {}
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        return no_column(parameters["objectName"].replace("`.`", ".").strip("`"), columns)
    lines = [line for line in str(error).splitlines() if line.strip()]
    message = _CONDITION.sub("", _STATE.sub("", lines[0])).strip() if lines else "Spark gives no reason"
    statement = [line for line in lines[1:] if not re.match(r"== SQL|-*\^", line)]
    return f"{message.removesuffix('.')}: {statement[0].strip()!r}" if _is_syntax(error) and statement else message


@contextmanager
def quiet_analysis() -> Iterator[None]:
    """Keeps PySpark from logging, as JSON, what it also raises."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _is_syntax(error: PySparkException) -> bool:
    return (error.getCondition() or "").startswith("PARSE")
