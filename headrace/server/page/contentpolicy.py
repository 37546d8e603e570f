"""The Content-Security-Policy of the page: it runs the scripts and has the styles that it came with, and no others.

Scripts and styles that stand in the page are named by their digests; so markup that got into the page at some later
time could not run anything, and neither could a link. Two things remain that NiceGUI needs. `unsafe-eval`: Vue compiles
the templates of NiceGUI's components in the browser, and NiceGUI evaluates what the server sends as JavaScript, such as
the functions in options of charts. Inline style attributes: charts have them in their tooltips.

An editor of code makes its styles in the browser. They are allowed by a nonce, which a script of the page gives to the
styles that scripts make: those that came as markup do not have it.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from html.parser import HTMLParser
from secrets import token_urlsafe
from typing import Final

_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {scripts}; script-src-attr 'none'; "
    "style-src-elem 'self' {styles}; style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; frame-src 'none'; worker-src 'none'; manifest-src 'none'; media-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


_STYLES_OF_SCRIPTS: Final = """<script data-style-nonce="{nonce}">(() => {{
  const create = document.createElement.bind(document), nonce = document.currentScript.dataset.styleNonce;
  document.createElement = (name, ...rest) => {{
    const made = create(name, ...rest);
    if (name === "style") made.nonce = nonce;
    return made;
  }};
}})()</script>"""


def allow_styles_of_scripts() -> str:
    """Returns the markup by which scripts of a page may make styles.

    >>> html = allow_styles_of_scripts()
    >>> "'nonce-" in content_policy(html), "'nonce-" in content_policy("<script data-style-nonce=''></script>")
    (True, False)
    """
    return _STYLES_OF_SCRIPTS.format(nonce=token_urlsafe(16))


def content_policy(html: str) -> str:
    """Returns the policy of a page.

    >>> content_policy("<script>go()</script><style>b {}</style>").split("; ")[1]
    "script-src 'self' 'unsafe-eval' 'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw='"
    """
    inline = _Inline()
    inline.feed(html)
    inline.close()
    styles = [*inline.digests["style"], *(f"'nonce-{nonce}'" for nonce in inline.nonces)]
    return _POLICY.format(scripts=" ".join(inline.digests["script"]), styles=" ".join(styles))


class _Inline(HTMLParser):
    """Collects the digests of scripts and styles that stand in a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.digests: dict[str, list[str]] = {"script": [], "style": []}
        self.nonces: list[str] = []
        self._open: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script" and (nonce := dict(attrs).get("data-style-nonce")):
            self.nonces.append(nonce)
        if tag in self.digests and "src" not in dict(attrs):
            self._open, self._text = tag, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            digest = base64.b64encode(sha256(self._text.encode()).digest()).decode()
            self.digests[tag].append(f"'sha256-{digest}'")
            self._open = None
