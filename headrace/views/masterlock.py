"""One writer of master data at a time: a lock in its folder, which ends with the process that holds it.

It is for local disks. Elsewhere the manifests decide: each is put where none is, so of two writers of a step one fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.local import processlock
from headrace.views.errors import ViewError


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """This process writes, until the end of the block; refused while another does.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder):
    ...     (folder / "lock").exists()
    True
    >>> with held(folder), held(folder):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: the master data in ... is being written by process ...; one writes at a time: \
ask again when it is done, or stop that process
    """
    if folder is None:
        yield
        return
    with processlock.held(folder / "lock", lambda other: _refusal(folder, other)):
        yield


def _refusal(folder: Path, other: processlock.Holder) -> ViewError:
    return ViewError(
        f"the master data in {folder} is being written by {other}; one writes at a time: ask again when it is done, or "
        "stop that process"
    )
