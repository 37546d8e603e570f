"""The placement of a topology: which checkpoint it has after how many rebalances, and where that begins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.local.atomicfile import replace_file


@dataclass(frozen=True)
class Placement:
    """The number of a topology's checkpoint, its rebalanced numbers of tasks, and the offsets where it began to read.

    >>> Placement(tasks={"count": 4}).checkpoint
    0
    """

    checkpoint: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes it to a file, completely or not at all."""
        replace_file(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> Placement:
        """Reads a file; without one, returns the placement of a new topology."""
        if not path.exists():
            return cls()
        stored = json.loads(path.read_bytes())
        starts = {spout: {int(n): at for n, at in offsets.items()} for spout, offsets in stored["starts"].items()}
        return cls(stored["checkpoint"], stored["tasks"], starts)
