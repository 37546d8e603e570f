"""Bodies for a sink that are too many to travel: a task puts them into a file, and only the file's name travels.

So what the driver is sent of a micro-batch does not grow with its output; a writer reads the files a body at a time.
Files are in a directory of the checkpoint, which all machines reach. Those whose names do not arrive are of tasks that
failed, came second or outlived their batch: nobody reads them, and they go with the others after the batch.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

MOST_BYTES: Final = 4 << 20
"""How many bytes of bodies a task sends to one sink; what is more goes into a file."""

_NAME: Final = b"staged:"  # no body begins with it: bodies are Arrow streams
_SCHEMA: Final = pa.schema([("body", pa.large_binary())])


class StagedBodies:
    """Writes the bodies of one task to a new file in a directory.

    >>> import tempfile
    >>> staged = StagedBodies(tempfile.mkdtemp())
    >>> staged.add(b"one")
    >>> staged.add(b"two")
    >>> list(read_bodies([b"zero", staged.close()]))
    [b'zero', b'one', b'two']
    """

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = str(Path(folder, uuid.uuid4().hex))
        self._file = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_stream(self._file, _SCHEMA)

    def add(self, body: bytes) -> None:
        """Appends a body."""
        self._writer.write(pa.record_batch([pa.array([body], pa.large_binary())], schema=_SCHEMA))

    def close(self) -> bytes:
        """Completes the file; returns what travels in place of the bodies."""
        self._writer.close()
        self._file.close()
        return _NAME + self._path.encode()


@dataclass(frozen=True)
class Bodies:
    """The bodies for one sink, which can be read several times; those in files are read one at a time."""

    sent: Sequence[bytes]

    def __iter__(self) -> Iterator[bytes]:
        return read_bodies(self.sent)

    @property
    def staged(self) -> bool:
        """Whether some of them are in files."""
        return any(body.startswith(_NAME) for body in self.sent)


def read_bodies(sent: Iterable[bytes]) -> Iterator[bytes]:
    """Yields bodies as they were sent, and those of files in place of the names."""
    for body in sent:
        if not body.startswith(_NAME):
            yield body
            continue
        with pa.OSFile(body.removeprefix(_NAME).decode()) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield batch.column(0)[0].as_py()


def remove_staged(folder: str) -> None:
    """Removes the files of a batch that is written, and those that nobody named."""
    shutil.rmtree(folder, ignore_errors=True)
