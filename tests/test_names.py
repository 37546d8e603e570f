"""Holds names and docstrings to the rules of CONTRIBUTING: modules that can be told apart, and plain English."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "headrace").rglob("*.py"))

SAME_MEANING = {
    "badrecords": "records that cannot be read: declared in the model, handled by the engine",
    "errors": "the exceptions of a package",
    "handle": "handles of running pipelines",
    "lakes": "tables of data lakes: declared in the model, described for clients at the edges",
    "lateoutput": "late elements as an output: declared in the model, made by a shard",
    "metrics": "metrics: recorded by functions, over HTTP, and as a dialect has them",
    "offsets": "how far a topic has been read",
    "processor": "what a shard does with its rows, for each kind of shard",
    "rows": "rows on their way to shards, for each kind of shard",
    "sinks": "sinks: declared in the model, written by the engine",
    "sources": "sources: declared in the model, read by the engine",
    "system": "headrace up, and its commands",
    "topics": "topics: of the log, declared in the model, over HTTP",
}
"""Names that several modules have, because they mean the same thing."""

NO_NAMES = {"told", "telling", "tidings", "held", "given", "kept", "mine", "beside", "apart", "standing", "untold"}
"""Words that say nothing of the thing they would name."""

UNCLEAR = re.compile(r"(What|Where|Who|Whom|Whose|How|Those|Whatever|Whoever|It|They)\b")
"""How a docstring must not begin: it begins with a verb, or says what kind of thing it is about."""


@cache
def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in FILES}


PUBLIC = {"held": "how many windows have state: a field of every status, over HTTP, too"}
"""Names of attributes that users read."""
STORED = {("headrace/dialects/storm/api/tuples.py", "_held"): "its name in pickles of an earlier version"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_of_one_name_mean_the_same() -> None:
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        by_name[path.stem].append(relative(path))
    ambiguous = {name: paths for name, paths in by_name.items() if len(paths) > 1 and not name.startswith("__")}
    assert set(ambiguous) - set(SAME_MEANING) == set()
    assert set(SAME_MEANING) - set(ambiguous) == set(), "no longer several"


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a module gives to its classes, functions, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def test_names_say_what_they_name() -> None:
    unclear = [
        f"{relative(path)}:{line} {name}"
        for path, tree in parsed().items()
        for name, line in bound_names(tree)
        if name.strip("_").lower() in NO_NAMES and name not in PUBLIC and (relative(path), name) not in STORED
    ]
    assert unclear == []


def test_docstrings_begin_with_a_verb_or_a_thing() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    unclear = [
        f"{relative(path)}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}"
        for path, tree in parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and UNCLEAR.match(text)
    ]
    assert unclear == []
