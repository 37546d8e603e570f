"""Errors of Beam pipelines on Headrace."""

from __future__ import annotations

import re


class BeamPipelineError(RuntimeError):
    """A pipeline failed; its message has the DoFn's own error, and the transform as Beam names it.

    >>> str(BeamPipelineError.of(ValueError("stage 'x' failed: KeyError: 'a' [while running 'Map(f)']")))
    "stage 'x' failed: KeyError: 'a' [while running 'Map(f)']"
    """

    @staticmethod
    def of(error: BaseException) -> BeamPipelineError:
        """Returns the error to be raised in place of one of the engine's."""
        return BeamPipelineError(str(error))

    @property
    def transform(self) -> str | None:
        """The transform that was running, if it is known."""
        match = re.search(r"\[while running '(.*?)'", str(self))
        return match[1] if match else None
