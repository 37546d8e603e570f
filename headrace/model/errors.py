"""The two ways a pipeline can be wrong: as it was written, or in what its functions did."""


class PipelineError(ValueError):
    """The pipeline cannot run as written; raised before anything runs.

    >>> import headrace as hr
    >>> hr.Pipeline().run()
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: the pipeline is empty: apply at least one transform, e.g. p | hr.Create([1])
    """


class TransformError(RuntimeError):
    """A user's function failed. The message holds the transform's label, the element and the user's traceback.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     _ = p | hr.Create([0]) | "invert" >> hr.Map(lambda x: 1 / x)
    Traceback (most recent call last):
        ...
    headrace.model.errors.TransformError: 'invert' failed on the element 0
    """
