"""Splits bytes, as they arrive, into lines of text. What is no line is counted, never dropped silently."""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST = 1 << 20
"""The most bytes that a line may have."""


@dataclass
class Lines:
    """Splits bytes into lines: UTF-8, ended by a line feed, with or without a carriage return before it.

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
    _begun: bytearray = field(default_factory=bytearray)  # of a line whose end has not arrived yet
    _skipping: bool = False  # the rest of a line that is too long

    def feed(self, piece: bytes) -> list[str]:
        """Returns the lines that end in this piece."""
        *ended, begun = piece.split(b"\n")
        if ended:
            ended[0] = bytes(self._begun) + ended[0]
            self._begun = bytearray()
            if self._skipping:
                del ended[0]
                self._skipping = False
        if not self._skipping:
            self._begun += begun  # in place: of a line that comes byte by byte, nothing is copied again and again
        if len(self._begun) > self.longest:
            self._begun, self._skipping = bytearray(), True
            self.too_long += 1
        return [text for line in ended if (text := self._text(line)) is not None]

    def end(self) -> list[str]:
        """Returns the last line of a sender that is done, though no line feed ended it."""
        return self.feed(b"\n") if self._begun else self._forget()

    def broken(self) -> None:
        """Drops and counts the line whose end was lost when the connection broke."""
        self.torn += bool(self._begun)
        self._forget()

    def _forget(self) -> list[str]:
        self._begun, self._skipping = bytearray(), False
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
