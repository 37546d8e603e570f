"""What a topology that was rebalanced begins with: places in the topics of its spouts, and the state of its tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.local.atomicfile import replace_file


@dataclass(frozen=True)
class Placed:
    """Where a rebalanced topology is: the number of its checkpoint, its tasks, and where that began to read.

    >>> Placed(tasks={"count": 4}).checkpoint
    0
    """

    checkpoint: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes it down, whole or not at all."""
        replace_file(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> Placed:
        """What was written down; the beginning if nothing was."""
        if not path.exists():
            return cls()
        held = json.loads(path.read_bytes())
        starts = {spout: {int(n): at for n, at in offsets.items()} for spout, offsets in held["starts"].items()}
        return cls(held["checkpoint"], held["tasks"], starts)


@dataclass(frozen=True)
class Seeds:
    """A directory of state: blocks in files, by component and task.

    >>> import tempfile
    >>> seeds = Seeds(Path(tempfile.mkdtemp()))
    >>> seeds.write("count", [[b"a", b"b"], []])
    >>> seeds.read("count", 0), seeds.read("count", 1)
    ([b'a', b'b'], [])
    """

    folder: Path

    def write(self, component: str, blocks: Sequence[Sequence[bytes]]) -> None:
        """Keeps the blocks of all tasks of a component."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, each in enumerate(blocks):
            column = pa.array(list(each), pa.large_binary())
            self._file(component, number).write_bytes(arrow_bytes(pa.record_batch({"block": column})))

    def read(self, component: str, number: int) -> list[bytes]:
        """Those of one task."""
        held: list[bytes] = (
            pa.ipc.open_stream(self._file(component, number).read_bytes()).read_all()["block"].to_pylist()
        )
        return held

    def _file(self, component: str, number: int) -> Path:
        return self.folder / f"{component}-{number}"
