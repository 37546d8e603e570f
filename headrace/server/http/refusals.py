"""Refused requests: the status, the reason and the headers of the response that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):
    """Ends a request with a JSON response that gives the reason.

    >>> Refusal(413, "a body has at most 4 bytes").status
    413
    """

    def __init__(self, status: int, reason: str, *, headers: Mapping[str, str] | None = None, **details: Any) -> None:
        super().__init__(reason)
        self.status, self.headers, self.details = status, dict(headers or {}), details

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the response: the reason, and the details if there are any."""
        return {"reason": str(self), **self.details}
