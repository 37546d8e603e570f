"""Errors of pipelines, as they were written or in what their functions did; and the refusal of other formats."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base class of every error that Headrace raises on purpose; its message says what to do about it.

    >>> import headrace as hr
    >>> try:
    ...     hr.Pipeline().run()
    ... except hr.HeadraceError as error:
    ...     print(error)
    the pipeline is empty: apply at least one transform, e.g. p | hr.Create([1])
    """


class PipelineError(HeadraceError, ValueError):
    """The pipeline cannot run as written; raised before anything runs.

    >>> import headrace as hr
    >>> hr.Pipeline().run()
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: the pipeline is empty: apply at least one transform, e.g. p | hr.Create([1])
    """


class TransformError(HeadraceError, RuntimeError):
    """A function of the user failed; the message names the transform and the element, and holds the traceback.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     _ = p | hr.Create([0]) | "invert" >> hr.Map(lambda x: 1 / x)
    Traceback (most recent call last):
        ...
    headrace.model.errors.TransformError: 'invert' failed on the element 0
    """


def other_format(owner: str, actual: object, supported: int, remedy: str) -> str:
    """Returns the error message for data in another format: its format, the supported one, and the remedy.

    >>> print(other_format("the checkpoint /data/speed", 2, 1, "run with a new checkpoint"))
    the checkpoint /data/speed has format 2, and this version of Headrace reads format 1: another version made it; \
use that one, or run with a new checkpoint
    """
    has = "a format without a number" if actual is None else f"format {actual}"
    return (
        f"{owner} has {has}, and this version of Headrace reads format {supported}: another version made it; use that "
        f"one, or {remedy}"
    )
