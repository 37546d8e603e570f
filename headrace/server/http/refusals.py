"""Requests that are refused: a status, a reason in one sentence, and what else the answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """Ends a request with an answer that says why, as JSON.

    >>> Refused(413, "a body has at most 4 bytes").status
    413
    """

    def __init__(self, status: int, reason: str, *, headers: Mapping[str, str] | None = None, **details: Any) -> None:
        super().__init__(reason)
        self.status, self.headers, self.details = status, dict(headers or {}), details

    @property
    def body(self) -> dict[str, Any]:
        """What the answer says."""
        return {"reason": str(self), **self.details}
