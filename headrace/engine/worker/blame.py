"""Reports failures of user functions: caught in the worker with their element, carried through Spark, made plain.

Spark reports a worker's exception as a thousand lines of text. The worker puts a marked line into it; the driver finds
that line and raises a TransformError that says what the user needs, the user's own traceback first.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.model.errors import TransformError
from headrace.model.metriccells import current_recorder

MARK = "headrace-failure:"
"""The beginning of a failure in whatever text Spark wraps it: JSON of label, error, trace and perhaps the element."""
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_SHOWN = 200  # characters of an element
_FRAMES = 8  # frames of the user's traceback: two lines each, so that the whole stays within 25 lines


class WorkerFailure(Exception):
    """Carries a failure from worker to driver; its text is one marked line."""


@contextmanager
def blame(label: str, elements: Sequence[Any] = (), cursor: Iterator[Any] | None = None) -> Iterator[None]:
    """Turns an exception into a WorkerFailure of this transform and, by `cursor`, the element it was working on.

    Metrics that are recorded in the block are this transform's.
    """
    recorder = current_recorder()
    before = "" if recorder is None else recorder.label
    try:
        if recorder is not None:
            recorder.label = label
        yield
    except WorkerFailure:
        raise
    except Exception as error:
        if MARK in str(error):  # Spark's, around one that was blamed in a worker
            raise
        more = {} if cursor is None else {"element": shorten(elements[max(consumed(elements, cursor) - 1, 0)])}
        raise WorkerFailure(failure(label, error, **more)) from None
    finally:
        if recorder is not None:
            recorder.label = before


def failure(label: str, error: Exception, **more: str) -> str:
    """Returns the line by which the driver knows that this transform failed, and how."""
    return MARK + json.dumps({"label": label, "error": _one_line(error), "trace": _user_trace(error), **more})


def consumed(elements: Sequence[Any], cursor: Iterator[Any]) -> int:
    """Returns how many of the elements an iterator over their list has passed.

    >>> cursor = iter(["a", "b", "c"])
    >>> next(cursor), consumed(["a", "b", "c"], cursor)
    ('a', 1)
    """
    return len(elements) - cursor.__length_hint__()  # type: ignore[attr-defined, no-any-return]


def shorten(element: Any) -> str:
    """Renders an element for messages, never too long, whatever its repr does."""
    try:
        text = repr(element)
    except Exception as error:
        text = f"<{type(element).__name__} whose repr fails: {error}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _one_line(error: Exception) -> str:
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    return shorten_text(lines[0] if len(lines) == 1 else " ".join(lines[-3:]))


def shorten_text(text: str) -> str:
    """Cuts a text to 1000 characters."""
    return text if len(text) <= 1000 else f"{text[:999]}…"


def _user_trace(error: Exception) -> list[str]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    shown = frames if len(frames) <= _FRAMES else [*frames[:2], *frames[2 - _FRAMES :]]
    lines = []
    for frame in shown:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"    {frame.line[:160]}")
    return lines


def transform_error(error: Exception) -> TransformError | None:
    """Returns the TransformError behind what Spark raised, or None if no user function is to blame."""
    match = re.search(re.escape(MARK) + r"(\{.*\})", str(error))
    if match is None:
        return None
    report = json.loads(match[1])
    where = f" on the element {report['element']}" if "element" in report else ""
    head = f"{report['label']!r} failed{where}: {report['error']}"
    return TransformError(
        "\n".join([head, *(["Traceback (most recent call last):", *report["trace"]] if report["trace"] else [])])
    )


def import_error(error: Exception) -> TransformError | None:
    """Returns the error for a function that workers could not load for want of a module; None for other errors.

    >>> print(import_error(RuntimeError("... ModuleNotFoundError: No module named 'shop.prices' ...")))
    a function is of the module 'shop', which Spark's Python workers cannot import; send it to them with `headrace run \
--py-files PATH` (a .py or .zip file, or the directory of a package), or install it where they run
    """
    match = re.search(r"ModuleNotFoundError: No module named '(\w+)", str(error))
    if match is None:
        return None
    return TransformError(
        f"a function is of the module {match[1]!r}, which Spark's Python workers cannot import; send it to them with "
        "`headrace run --py-files PATH` (a .py or .zip file, or the directory of a package), or install it where they "
        "run"
    )


def plain_error(error: BaseException) -> BaseException:
    """Returns the error to raise: a user function's failure in plain words, Spark's own as it is."""
    failure = (transform_error(error) or import_error(error)) if isinstance(error, Exception) else None
    if failure is None:
        return error
    failure.__cause__ = None
    return failure
