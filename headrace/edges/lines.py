"""Bytes, as they come, to lines of text. What is no line is counted, never passed over in silence."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1 << 20
"""How many bytes a line may have."""


@dataclass
class Lines:
    """Splits what arrives, piece by piece, into lines: UTF-8, ended by a line feed, with or without a carriage return.

    >>> lines = Lines(longest=5)
    >>> lines.feed(b"a\\r\\nb"), lines.feed(b"c\\nmuch too"), lines.feed(b" long\\n\\xff\\nd"), lines.end()
    (['a'], ['bc'], [], ['d'])
    >>> lines.too_long, lines.not_text
    (1, 1)
    """

    longest: int = LONGEST
    too_long: int = 0
    not_text: int = 0
    torn: int = 0
    _begun: bytes = b""  # of a line whose end has not come yet
    _passing: bool = False  # over the rest of a line that is too long

    def feed(self, piece: bytes) -> list[str]:
        """The lines that end in this piece."""
        *ended, begun = (self._begun + piece).split(b"\n")
        if ended and self._passing:
            del ended[0]
            self._passing = False
        self._begun = b"" if self._passing else begun
        if len(self._begun) > self.longest:
            self._begun, self._passing = b"", True
            self.too_long += 1
        return [text for line in ended if (text := self._text(line)) is not None]

    def end(self) -> list[str]:
        """The sender is done: what it sent last is a line, though nothing ended it."""
        return self.feed(b"\n") if self._begun else self._forget()

    def broken(self) -> None:
        """The connection broke: nobody knows how the last line would have gone on."""
        self.torn += bool(self._begun)
        self._forget()

    def _forget(self) -> list[str]:
        self._begun, self._passing = b"", False
        return []

    def _text(self, line: bytes) -> str | None:
        if len(line) > self.longest:
            self.too_long += 1
            return None
        try:
            return line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            self.not_text += 1
            return None
