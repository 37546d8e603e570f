"""The Content-Security-Policy of the page: it runs the scripts and has the styles that it came with, and no others.

Scripts and styles that stand in the page are named by their digests; so markup that got into the page at some later
time could not run anything, and neither could a link. Two things remain that NiceGUI needs. `unsafe-eval`: Vue compiles
the templates of NiceGUI's components in the browser, and NiceGUI evaluates what the server sends as JavaScript, such as
the functions in options of charts. Inline style attributes: charts have them in their tooltips.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from html.parser import HTMLParser
from typing import Final

_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {scripts}; script-src-attr 'none'; "
    "style-src-elem 'self' {styles}; style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; frame-src 'none'; worker-src 'none'; manifest-src 'none'; media-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def content_policy(html: str) -> str:
    """Returns the policy of a page.

    >>> content_policy("<script>go()</script><style>b {}</style>").split("; ")[1]
    "script-src 'self' 'unsafe-eval' 'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw='"
    """
    inline = _Inline()
    inline.feed(html)
    inline.close()
    return _POLICY.format(scripts=" ".join(inline.digests["script"]), styles=" ".join(inline.digests["style"]))


class _Inline(HTMLParser):
    """Collects the digests of scripts and styles that stand in a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.digests: dict[str, list[str]] = {"script": [], "style": []}
        self._open: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.digests and "src" not in dict(attrs):
            self._open, self._text = tag, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            digest = base64.b64encode(sha256(self._text.encode()).digest()).decode()
            self.digests[tag].append(f"'sha256-{digest}'")
            self._open = None
