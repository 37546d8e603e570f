"""JSON responses: small ones are encoded at once, large ones in pieces, which are sent as fast as the client reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.model.jsontext import PIECE, dumps, encode_pieces

_LONGEST: Final = 2_000  # characters of a reason: it may repeat the request, which may be long


class AnswerLimits(Protocol):
    """The limits of an answer: its cells, and its bytes as JSON."""

    @property
    def answer_cells(self) -> int:
        """The maximal number of cells."""

    @property
    def answer_bytes(self) -> int:
        """The size limit."""


class JsonResponse(Response):
    """A response whose body is JSON of a few rows at most, since it is encoded where it is made.

    >>> JsonResponse({"n": 3}, 400, {"Retry-After": "1"}).raw_headers
    [(b'content-length', b'7'), (b'content-type', b'application/json'), (b'retry-after', b'1')]
    """

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = status_code, None
        self.body = dumps(content)
        # The same as Starlette's, which spends time on looking for headers that are there already.
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), _CONTENT_TYPE]
        if headers:
            self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


class PiecesResponse(Response):
    """A response of any size: the next piece is sent when the client has read most of those before.

    >>> PiecesResponse([b"[1,", b"2]"]).raw_headers
    [(b'content-length', b'5'), (b'content-type', b'application/json')]
    """

    def __init__(self, pieces: list[bytes], status_code: int = 200, media_type: str = "application/json") -> None:
        self.status_code, self.background, self.media_type = status_code, None, media_type
        length = sum(map(len, pieces))
        self.pieces = pieces if length > PIECE else [b"".join(pieces)]
        self.on_end: Callable[[], None] | None = None
        self.raw_headers = [(b"content-length", b"%d" % length), (b"content-type", media_type.encode())]

    @staticmethod
    def of(content: Any, limits: AnswerLimits, status_code: int = 200) -> PiecesResponse:
        """Encodes an answer as JSON, within limits. To be called in a thread: it may take a second."""
        return PiecesResponse(encode_pieces(content, cells=limits.answer_cells, size=limits.answer_bytes), status_code)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self.pieces.reverse()
            while self.pieces:  # what is sent is not kept
                piece = self.pieces.pop()
                await send({"type": "http.response.body", "body": piece, "more_body": bool(self.pieces)})
        finally:
            if self.on_end is not None:
                self.on_end()


def split_text(text: bytes) -> list[bytes]:
    """Splits a text into pieces.

    >>> [len(piece) for piece in split_text(b"x" * 150_000)]
    [65536, 65536, 18928]
    """
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def shorten(reason: str) -> str:
    """Shortens a reason that repeats too much of a request.

    >>> shorten("no parameter 'x'"), len(shorten("x" * 5_000))
    ("no parameter 'x'", 2000)
    """
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"


_CONTENT_TYPE: Final = (b"content-type", b"application/json")
