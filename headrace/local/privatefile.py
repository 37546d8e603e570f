"""Private files: made for this user only, never opened through a link, and refused if others may write to them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from headrace.local.privatefolder import UntrustedPath, check_status


def private_opener(path: str, flags: int) -> int:
    """Opens a private file: `open(path, mode, opener=private_opener)`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> with open(path, "xb", opener=private_opener) as file:
    ...     _ = file.write(b"text")
    >>> f"{path.stat().st_mode:o}", read_private(path)
    ('100600', b'text')
    """
    try:
        # Not blocking: a pipe that somebody has left there would wait for another end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedPath(f"{path} is a link, where a file of Headrace's own should be; remove it") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedPath(f"{path} is no file; remove it")
        check_status(Path(path), status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path) -> bytes:
    """Reads a private file."""
    with open(path, "rb", opener=private_opener) as file:
        return file.read()
