"""The state that tasks of a rebalanced topology begin with: blocks in files, by component and task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.engine.ipc import arrow_bytes


@dataclass(frozen=True)
class Seeds:
    """A directory of them.

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
        held: list[bytes] = pa.ipc.open_stream(self._file(component, number).read_bytes()).read_all()["block"].to_pylist()
        return held

    def _file(self, component: str, number: int) -> Path:
        return self.folder / f"{component}-{number}"
