"""Tables as HTML, for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Returns a table of text, with a note below it.

    >>> html_table(["n"], [["<1>"]], "and 2 more")
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table><p>and 2 more</p>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def html_text(text: str) -> str:
    """Returns text as it is laid out.

    >>> html_text("a\\n└─ <b>")
    '<pre>a\\n└─ &lt;b&gt;</pre>'
    """
    return f"<pre>{escape(text)}</pre>"
