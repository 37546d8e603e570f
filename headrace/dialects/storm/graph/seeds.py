"""The initial state of a rebalanced topology's tasks, in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.local.privatefile import private_opener, read_private
from headrace.local.privatefolder import make_folder


@dataclass(frozen=True)
class Seeds:
    """A directory of initial state: blocks in files, by component and task.

    >>> import tempfile
    >>> seeds = Seeds(Path(tempfile.mkdtemp()))
    >>> seeds.write("count", [[b"a", b"b"], []])
    >>> seeds.read("count", 0), seeds.read("count", 1)
    ([b'a', b'b'], [])
    """

    folder: Path

    def write(self, component: str, blocks: Sequence[Sequence[bytes]]) -> None:
        """Writes the blocks of all tasks of a component."""
        make_folder(self.folder)
        for number, task_blocks in enumerate(blocks):
            column = pa.array(list(task_blocks), pa.large_binary())
            with open(self._file(component, number), "wb", opener=private_opener) as file:
                file.write(arrow_bytes(pa.record_batch({"block": column})))

    def read(self, component: str, number: int) -> list[bytes]:
        """Reads the blocks of one task."""
        rows = pa.ipc.open_stream(read_private(self._file(component, number))).read_all()
        blocks: list[bytes] = rows["block"].to_pylist()
        return blocks

    def _file(self, component: str, number: int) -> Path:
        return self.folder / f"{component}-{number}"
