"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Gives a file this content: after a crash it has the old or the new one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> replace_file(path, b"one")
    >>> replace_file(path, b"two")
    >>> path.read_bytes(), [each.name for each in path.parent.iterdir()]
    (b'two', ['note'])
    """
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
