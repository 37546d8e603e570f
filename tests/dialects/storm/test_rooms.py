"""The rooms of the dialect: every import goes from a later room to an earlier one, and only the last room executes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = "headrace.dialects.storm"
ROOMS = ("api", "task", "graph", "cluster")
"""In the order in which they may import."""
OUTSIDE = {
    "api": ("headrace.model",),
    "task": ("headrace.model", "headrace.engine.columns", "headrace.engine.shard"),
    "graph": ("headrace.model", "headrace.engine.columns", "headrace.log", "headrace.local"),
    "cluster": ("headrace.model", "headrace.engine", "headrace.log", "headrace.local"),
}
"""What each room may import from the rest of the tree."""
WITHOUT_SPARK = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j"))
assert not loaded, loaded[:5]
"""


def modules(room: str) -> list[Path]:
    return sorted((ROOT / PACKAGE.replace(".", "/") / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The names that a module imports from the tree, anywhere in it: in functions and for type checking, too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("headrace"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if (node.module or "").startswith("headrace"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_itself_earlier_rooms_and_what_is_declared(room: str) -> None:
    earlier = tuple(f"{PACKAGE}.{name}" for name in ROOMS[: ROOMS.index(room) + 1])
    assert modules(room)
    allowed = (*earlier, *OUTSIDE[room])
    wrong = {(path.name, name) for path in modules(room) for name in imports(path) if not is_inside(name, allowed)}
    assert wrong == set()


def test_every_module_is_in_a_room() -> None:
    package = ROOT / PACKAGE.replace(".", "/")
    assert [path.name for path in package.glob("*.py")] == ["__init__.py"]
    assert {path.name for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(ROOMS)


@pytest.mark.parametrize("rooms", [("api", "task"), ("graph",)])
def test_what_does_not_execute_loads_without_spark(rooms: tuple[str, ...]) -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in rooms
        for path in modules(room)
    ]
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
