"""Errors of Beam pipelines on Headrace."""

from __future__ import annotations

import re


class BeamPipelineError(RuntimeError):
    """A pipeline failed; its message has the DoFn's own error, and the transform as Beam names it.

    >>> str(BeamPipelineError.of(ValueError("'read … write' failed: KeyError: 'a' [while running 'Map(f)']")))
    "KeyError: 'a' [while running 'Map(f)']"
    """

    @staticmethod
    def of(error: BaseException) -> BeamPipelineError:
        """Returns the error to be raised in place of one of the engine's."""
        text = str(error)
        if "[while running" in text:  # which names the transform, where the engine names the stage
            text = re.sub(r"^'.*?' failed: ", "", text)
        return BeamPipelineError(text)

    @property
    def transform(self) -> str | None:
        """The transform that was running, if it is known."""
        match = re.search(r"\[while running '(.*?)'", str(self))
        return match[1] if match else None
