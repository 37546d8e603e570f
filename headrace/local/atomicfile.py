"""Files that are replaced atomically: after a crash a file has its old content or its new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.local.privatefile import private_opener


def replace_file(path: Path, data: bytes) -> None:
    """Replaces the content of a file atomically and durably.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> replace_file(path, b"one")
    >>> replace_file(path, b"two")
    >>> path.read_bytes(), [entry.name for entry in path.parent.iterdir()]
    (b'two', ['note'])
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # of a process that died while it wrote
    with open(new, "xb", opener=private_opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Makes a file's bytes, or the new names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
