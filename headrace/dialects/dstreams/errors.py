"""Errors of a program of DStreams."""

from __future__ import annotations

from headrace.model.errors import HeadraceError


class StreamingContextError(HeadraceError, RuntimeError):
    """A StreamingContext, or a stream of one, was used in a way that its life cycle does not allow."""
