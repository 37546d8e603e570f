"""Errors in SQL text, with the line, the column and a caret."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headrace.model.errors import PipelineError


class SqlError(PipelineError):
    """Raised for a statement that is not understood, or that asks for what a stream cannot do.

    `line` and `column` say where in the text, from 1 on; they are None if the whole statement is meant.

    >>> print(SqlError("there is no column 'pirce'", "SELECT symbol,\\n  pirce FROM trades", 17))
    line 2, column 3: there is no column 'pirce'
      pirce FROM trades
      ^
    """

    def __init__(self, reason: str, text: str = "", position: int | None = None) -> None:
        self.reason = reason
        self.line: int | None = None
        self.column: int | None = None
        if position is not None:
            before = text[:position]
            line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
            self.line, self.column = line, column
            shown = text.split("\n")[line - 1]
            caret = "".join("\t" if char == "\t" else " " for char in shown[: column - 1]) + "^"
            reason = f"line {line}, column {column}: {reason}\n{shown}\n{caret}"
        super().__init__(reason)


def error_at(node: exp.Expr, text: str, reason: str) -> SqlError:
    """Returns the error for a part of a statement: where its first word is, as far as that is known."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return SqlError(reason, text, min(starts, default=None))


def parse_error(error: ParseError | TokenError, text: str) -> SqlError:
    """Returns what sqlglot could not parse as an error of ours."""
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    if "line" not in details:
        return SqlError(str(error).split("\n", 1)[0], text, len(text.rstrip()) if text.strip() else None)
    line, highlight = details["line"], details.get("highlight") or ""
    begin = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1])
    return SqlError(details["description"], text, begin + max(details["col"] - max(len(highlight), 1), 0))
