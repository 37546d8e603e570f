"""The rooms of the dialect: every import goes from a later room to an earlier one, and only the last room executes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.dialects.storm.test_rooms import ROOT, WITHOUT_SPARK, imports, is_inside

PACKAGE = "headrace.dialects.millwheel"
ROOMS = ("api", "graph", "mill")
"""In the order in which they may import."""
OUTSIDE = {
    "api": ("headrace.model", "headrace.log", "headrace.edges"),
    "graph": ("headrace.model", "headrace.log", "headrace.edges"),
    "mill": ("headrace.model", "headrace.log", "headrace.local", "headrace.engine"),
}
"""What each room may import from the rest of the tree."""


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_itself_earlier_rooms_and_what_is_declared(room: str) -> None:
    allowed = (*(f"{PACKAGE}.{name}" for name in ROOMS[: ROOMS.index(room) + 1]), *OUTSIDE[room])
    paths = sorted((ROOT / PACKAGE.replace(".", "/") / room).rglob("*.py"))
    assert paths
    assert {(path.name, name) for path in paths for name in imports(path) if not is_inside(name, allowed)} == set()


def test_declaring_building_and_following_need_no_spark() -> None:
    names = [PACKAGE, "headrace.commands.millwheel"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
