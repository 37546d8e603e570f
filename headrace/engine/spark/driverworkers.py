"""Python workers that Spark starts on the driver: for a stream's operators with state, and for Python sources.

Spark waits ten seconds for each to connect, a constant of its PythonWorkerFactory.createSimpleWorker that no setting
raises. On a busy machine that may be too short: the query fails before its first batch, and is to be started again.
"""

from __future__ import annotations

from typing import Final

STARTS: Final = 6
"""How often a query is started at most: it then has a minute, as Spark gives to the workers of tasks."""

_MESSAGE: Final = "Python worker failed to connect back"


def never_connected(error: BaseException) -> bool:
    """Returns whether a query failed because such a worker did not connect in time.

    >>> never_connected(RuntimeError("terminated with exception: Python worker failed to connect back."))
    True
    """
    return _MESSAGE in str(error)
