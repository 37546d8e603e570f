"""The rooms of DStreams import in one order: worker, graph, execution, api."""

from __future__ import annotations

from tests.test_layers import all_imports

ROOT = "headrace.dialects.dstreams."
ROOMS = ("errors", "worker", "graph", "execution", "api")


def room_of(module: str) -> int:
    return ROOMS.index(module.removeprefix(ROOT).partition(".")[0])


def test_rooms_import_in_their_order() -> None:
    inside = [
        each
        for module, imports in all_imports().items()
        if module.startswith(ROOT)
        for each in imports
        if each.imported.startswith(ROOT)
    ]
    assert inside
    assert [each for each in inside if room_of(each.imported) > room_of(each.module)] == []
