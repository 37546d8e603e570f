"""Python workers that Spark starts on the driver: for a stream's operators with state, and for Python sources.

Spark waits ten seconds for each to connect, a constant of its PythonWorkerFactory.createSimpleWorker that no setting
raises. On a busy machine that may be too short: the query fails before its first batch, and is to be started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from headrace.model.errors import HeadraceError

_MESSAGE: Final = "Python worker failed to connect back"


class WorkerError(HeadraceError, RuntimeError):
    """The Python of workers does not start, however long one waits."""


def never_connected(error: BaseException) -> bool:
    """Returns whether a query failed because such a worker did not connect in time.

    >>> never_connected(RuntimeError("terminated with exception: Python worker failed to connect back."))
    True
    """
    return _MESSAGE in str(error)


def await_worker(python: str) -> None:
    """Starts what a worker is made of, and waits for it as long as it takes; refuses a Python that cannot do it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        subprocess.run(
            [python, "-c", "import pyspark.worker"], env=environment, capture_output=True, text=True, check=True
        )
    except OSError as error:
        raise WorkerError(f"Spark's Python workers cannot be started: {error}; set PYSPARK_PYTHON") from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
        raise WorkerError(
            f"Spark's Python workers do not start: {python} cannot import pyspark.worker ({reason}); set "
            "PYSPARK_PYTHON to a Python that has PySpark"
        ) from None
