"""The exceptions that Headrace raises: one base class, and the two ways in which a pipeline can be wrong."""


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
