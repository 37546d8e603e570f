"""What a system does when an archive is due."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.system.system import _STEPS, _archive


class Counted:
    """Stands for master data: a step more with each archive, and one after a compaction."""

    def __init__(self) -> None:
        self.number, self.most, self.compactions = 0, 0, 0

    def archive(self) -> None:
        self.number += 1
        self.most = max(self.most, self.number)

    def compact(self) -> None:
        self.number = 1
        self.compactions += 1

    def steps(self) -> list[int]:
        return list(range(self.number))


@pytest.mark.parametrize("times", [_STEPS, 500])
def test_steps_do_not_pile_up(times: int) -> None:
    master: Any = Counted()
    for _ in range(times):
        _archive(master)
    assert master.most <= _STEPS + 1
    assert master.compactions == (times - 1) // _STEPS
