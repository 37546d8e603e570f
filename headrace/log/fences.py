"""Fencing tokens of producers: of two processes that both append as one producer, only the newer one succeeds.

A process that takes a producer over gets a token, which is one more than the last, from a file beside the partitions.
Every append with a token reads that file while it holds the lock of the partition: one with an older token is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.local.atomicfile import replace_file
from headrace.local.filelock import file_lock
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import make_folder
from headrace.log.errors import FencedError


@dataclass(frozen=True)
class Fence:
    """The right to append as a producer, which ends when another process takes the producer over.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp(), "fences")
    >>> older, newer = Fence.take(folder, 7), Fence.take(folder, 7)
    >>> older.token, newer.token
    (1, 2)
    >>> newer.check("visits/0")
    >>> older.check("visits/0")
    Traceback (most recent call last):
        ...
    headrace.log.errors.FencedError: visits/0: this process appends with token 1, but another has taken over with token 2; its append is refused: stop this process
    """  # noqa: E501 (the message is one line)

    file: Path
    token: int

    @classmethod
    def take(cls, folder: Path, producer: int) -> Fence:
        """Takes a producer over: whoever had it before is refused from now on, once the appends under way are done."""
        make_folder(folder)
        file = folder / str(producer)
        with file_lock(folder / "lock"):
            token = cls._read(file) + 1
            replace_file(file, str(token).encode())
        return cls(file, token)

    @classmethod
    def newest(cls, folder: Path, producer: int) -> int:
        """Returns the newest token of a producer, 0 if nobody has taken it over yet."""
        return cls._read(folder / str(producer))

    @classmethod
    def remove(cls, folder: Path, producer: int) -> None:
        """Removes the token of a producer that nobody takes over any more: all who have one are refused."""
        (folder / str(producer)).unlink(missing_ok=True)

    def check(self, place: str) -> None:
        """Raises an error if another process has the producer now; the caller holds the lock of the partition."""
        if (newest := self._read(self.file)) < self.token:
            raise FencedError(
                f"{place}: this process appends with token {self.token}, but the newest that the topic knows is "
                f"{newest}: it was made anew, or restored from a copy; stop this process, and start it again"
            )
        if newest > self.token:
            raise FencedError(
                f"{place}: this process appends with token {self.token}, but another has taken over with token "
                f"{newest}; its append is refused: stop this process"
            )

    @staticmethod
    def _read(file: Path) -> int:
        try:
            return int(read_private(file))
        except FileNotFoundError:
            return 0
