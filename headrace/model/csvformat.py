"""The format of CSV files: separator, quotes, how null is written, and the encoding; RFC 4180 if nothing is said."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass
from typing import Any, Final

from headrace.model.errors import PipelineError

ENCODINGS: Final = {
    "utf-8": "UTF-8",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32": "UTF-32",
}
"""The encodings of CSV files, by Python's name for them, with Java's."""
_BREAKS: Final = ("\r", "\n")


@dataclass(frozen=True)
class CsvFormat:
    """The format of CSV files, as `ReadCsv` and `WriteCsv` take it.

    `owner` is the transform that it belongs to, for messages. Without an `escape`, a quote in quotes is doubled.

    >>> CsvFormat("ReadCsv", separator=";").escape
    '"'
    >>> CsvFormat("ReadCsv", separator="->")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: ReadCsv: separator is one character, such as ',' or ';' or '\\t', got '->'
    """

    owner: str
    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    multi_line: bool = False

    def __post_init__(self) -> None:
        if not _is_character(self.separator):
            raise self._error(f"separator is one character, such as ',' or ';' or '\\t', got {self.separator!r}")
        if self.quote is not None and not _is_character(self.quote):
            raise self._error(f"quote is one character, such as '\"', or None if nothing is quoted, got {self.quote!r}")
        if self.escape is not None and (self.quote is None or not _is_character(self.escape)):
            raise self._error(
                f"escape is the one character before a quote in quotes, such as '\\\\', got {self.escape!r} with the "
                f"quote {self.quote!r}; without it, such a quote is doubled"
            )
        if self.separator in (self.quote, self.escape):
            raise self._error(f"the separator {self.separator!r} is the quote or the escape, too; choose another one")
        for name in ("header", "multi_line"):
            if not isinstance(getattr(self, name), bool):
                raise self._error(f"{name} is True or False, got {getattr(self, name)!r}")
        special = {*_BREAKS, self.separator, self.quote, self.escape} - {None}
        if not isinstance(self.null, str) or special & {*self.null}:
            raise self._error(
                f"null is the text of a field that is null, such as '' or 'NA', without separators, quotes and line "
                f"breaks, got {self.null!r}"
            )
        if self.java_encoding is None:
            raise self._error(f"encoding is one of {', '.join(ENCODINGS)}, got {self.encoding!r}")
        if self.java_encoding.startswith(("UTF-16", "UTF-32")) and not self.multi_line:
            raise self._error(f"lines of {self.encoding} are read with multi_line=True only; pass it, too")
        if self.escape is None and self.quote is not None:
            object.__setattr__(self, "escape", self.quote)

    @property
    def java_encoding(self) -> str | None:
        """Java's name of the encoding; None if it is not one of ENCODINGS."""
        try:
            return ENCODINGS.get(codecs.lookup(self.encoding).name)
        except (LookupError, TypeError):
            return None

    def names(self, header: list[str]) -> list[str]:
        """Returns the names of columns in a header, which is names already or, without multi_line, a whole line.

        >>> CsvFormat("ReadCsv").names(['id,"name, or firm"'])
        ['id', 'name, or firm']
        """
        if self.multi_line:
            return header
        quotes: dict[str, Any] = {"quotechar": self.quote, "doublequote": self.escape == self.quote}
        quotes |= {"quoting": csv.QUOTE_NONE} if self.quote is None else {}
        quotes |= {} if self.escape == self.quote else {"escapechar": self.escape}
        return [name for line in csv.reader(header, delimiter=self.separator, **quotes) for name in line]

    def _error(self, message: str) -> PipelineError:
        return PipelineError(f"{self.owner}: {message}")


def _is_character(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text not in _BREAKS and text <= "\uffff"
