"""Adapts pages and docstrings to the site that `make docs` builds: a hook of mkdocs and an extension of griffe.

The API reference is made of the groups of names in `headrace/__init__.py`, and of the packages that have `__all__`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = {
    "Storm": "headrace.dialects.storm",
    "DStreams": "headrace.dialects.dstreams",
    "MillWheel": "headrace.dialects.millwheel",
    "Naiad": "headrace.dialects.naiad",
    "Sessions of SQL": "headrace.dialects.sql.sqlsession",
    "The log": "headrace.log",
    "Testing": "headrace.testing",
}


@cache
def reference_pages() -> dict[str, str]:
    """Returns the pages of the reference, in Markdown, by their titles."""
    pages = {}
    source = (_ROOT / "headrace/__init__.py").read_text("utf-8")
    for title, rest, imports in re.findall(r"^# ([\w' ]+)([:,.;].*)\n(from (?:.+\n)+)", source, re.MULTILINE):
        names = re.findall(r"(\w+) as \1\b", imports)
        pages[title] = _page(f"{title}{rest}", [f"headrace.{name}" for name in names])
    headrace = griffe.load("headrace", search_paths=[_ROOT])  # each package by itself would be all of it, too
    for title, package in _PACKAGES.items():
        module = headrace[package.removeprefix("headrace.")]
        pages[title] = _page(title, [f"{package}.{name}" for name in module.exports or ()])
    return pages


def _page(title: str, names: list[str]) -> str:
    return "\n\n".join([f"# {title.rstrip('.')}", *(f"::: {name}" for name in names)]) + "\n"


def on_config(config: MkDocsConfig) -> None:
    """Adds the reference to the navigation."""
    assert config.nav is not None
    config.nav.append({"API reference": [{title: _path(title)} for title in reference_pages()]})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages of the reference."""
    for title, page in reference_pages().items():
        files.append(File.generated(config, _path(title), content=page))


def _path(title: str) -> str:
    return f"reference/{re.sub('[^a-z]+', '-', title.lower())}.md"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces links to files of the repository, which the site does not have, by their text."""
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", markdown)


class Examples(griffe.Extension):
    """Marks the examples in docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", obj.docstring.value, flags=re.MULTILINE
            )
