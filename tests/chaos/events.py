"""What happens to the files of a directory tree, as it happens: Linux's inotify, without a package for it.

It lets a test act at a moment of another process's work without waiting for time to pass.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x80, 0x100, 0x200
_IS_DIRECTORY: Final = 0x40000000
_HEADER: Final = struct.Struct("iIII")
_SPACE: Final = 1 << 16


class FileEvents:
    """Iterates over the paths of files and directories that are made, written, renamed or deleted below `root`.

    It ends when the process does that is to be watched. Files are also told that were in a new directory before it
    could be watched.
    """

    def __init__(self, root: Path, process: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_CLOEXEC)
        if self._queue < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        self._process = os.pidfd_open(process)
        self._folders: dict[int, Path] = {}
        for _ in self._watch(root):
            pass

    def __iter__(self) -> Iterator[Path]:
        while True:
            ready, _, _ = select.select([self._queue, self._process], [], [])
            if self._queue not in ready:
                return
            data, at = os.read(self._queue, _SPACE), 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0").decode()
                at += _HEADER.size + length
                if not name or watch not in self._folders:  # a watched directory itself is gone
                    continue
                path = self._folders[watch] / name
                yield path
                if mask & _IS_DIRECTORY and mask & (_CREATE | _MOVED_TO):
                    yield from self._watch(path)

    def close(self) -> None:
        os.close(self._queue)
        os.close(self._process)

    def _watch(self, folder: Path) -> Iterator[Path]:
        watch = self._libc.inotify_add_watch(
            self._queue, os.fsencode(folder), _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
        )
        if watch < 0:  # gone again already
            return
        self._folders[watch] = folder
        try:
            there = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in there:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from self._watch(Path(entry.path))
