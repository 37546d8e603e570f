"""How a mill follows its directory, with streams that are only played."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from headrace import millwheel as mw
from headrace.dialects.millwheel.mill import mill as module
from headrace.dialects.millwheel.mill.computationfile import load_computation
from headrace.dialects.millwheel.mill.computationstatus import ComputationStatus
from headrace.dialects.millwheel.mill.millfolder import Declared
from headrace.local.processlock import exclusive
from headrace.log.fences import Fence

WORDS = str(pathlib.Path(__file__).with_name("words.py"))


class Played:
    """A running computation whose fate the test decides."""

    started: list[Played]

    def __init__(
        self, folder: Any, declared: Declared, computation: mw.Computation, spark: Any, **options: Any
    ) -> None:
        self.folder, self.name = folder, declared.name
        self.fence = Fence.take(folder.folder(self.name) / "owner", 0)
        self.batches, self.failed, self.stopped = 0, False, False
        Played.started.append(self)

    @property
    def owned(self) -> bool:
        return Fence.newest(self.fence.file.parent, 0) == self.fence.token

    def status(self) -> ComputationStatus:
        error = "no such field" if self.failed else None
        return ComputationStatus(
            self.name, "failed" if self.failed else "running", 7, batches=self.batches, error=error
        )

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def mill(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> mw.Mill:
    monkeypatch.setattr(module, "RunningComputation", Played)
    Played.started = []
    mill = mw.Mill(tmp_path, spark=object())
    mill.folder.add(Declared("sums", f"{WORDS}:Running"))
    return mill


def test_what_fails_starts_again_as_long_as_it_helps(mill: mw.Mill) -> None:
    mill.look()
    for _ in range(5):
        Played.started[-1].failed, Played.started[-1].batches = True, 1
        mill.look()
    assert [each.stopped for each in Played.started] == [True] * 5 + [False]
    for _ in range(5):
        Played.started[-1].failed = True  # before its first batch
        mill.look()
    assert len(Played.started) == 8
    assert [(each.state, each.error) for each in mill.folder.statuses()] == [("failed", "no such field")]
    mill.folder.remove("sums")
    mill.look()
    mill.folder.add(Declared("sums", f"{WORDS}:Running"))  # it was mended
    mill.look()
    assert len(Played.started) == 9


def test_what_another_process_took_over_stops_here(mill: mw.Mill) -> None:
    mill.look()
    Fence.take(mill.folder.folder("sums") / "owner", 0)
    mill.look()
    assert Played.started[0].stopped
    mill.look()
    assert len(Played.started) == 1  # it is not taken back


def test_only_what_it_is_to_run(mill: mw.Mill) -> None:
    mill.folder.add(Declared("largest", f"{WORDS}:Largest"))
    mill.folder.add(Declared("none", "nowhere.py:None"))
    mill.names = ["largest", "none"]
    mill.look()
    assert [each.name for each in Played.started] == ["largest"]
    states = {each.name: each.state for each in mill.folder.statuses()}
    assert states == {"largest": "waiting", "none": "failed", "sums": "waiting"}


def test_a_program_that_is_refused_leaves_what_was_declared(mill: mw.Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    def owned(*_: object, **__: object) -> Played:
        raise module.Owned("another process runs it")

    before = mill.folder.read("sums")
    monkeypatch.setattr(module, "RunningComputation", owned)
    with pytest.raises(module.Owned):
        mill.run(load_computation(f"{WORDS}:Running"), "sums")
    assert mill.folder.read("sums") == before
    fence = Fence.take(mill.folder.folder("sums") / "owner", 0)
    with exclusive(mill.folder.lock("sums", fence.token), lambda holder: ValueError()):
        mill.folder.remove("sums", discard=True)
        with pytest.raises(mw.ComputationError, match="is being discarded"):
            mill.run(load_computation(f"{WORDS}:Running"), "sums")
