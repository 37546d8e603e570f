"""The lock that lets one process write master data at a time; it ends with the process.

It is for local disks. On other file systems the manifests decide: a manifest is put only where there is none, so of two
processes that write the same step one fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.local.processlock import LockHolder, exclusive
from headrace.views.errors import ViewError


@contextmanager
def exclusive_writer(folder: Path | None) -> Iterator[None]:
    """Holds the writer's lock of a local folder in the `with` block; refused while another process holds it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with exclusive_writer(folder):
    ...     (folder / "lock").exists()
    True
    >>> with exclusive_writer(folder), exclusive_writer(folder):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: the master data in ... is being written by process ...; one writes at a time: \
ask again when it is done, or stop that process
    """
    if folder is None:
        yield
        return
    with exclusive(folder / "lock", lambda holder: _refusal(folder, holder)):
        yield


def _refusal(folder: Path, holder: LockHolder) -> ViewError:
    return ViewError(
        f"the master data in {folder} is being written by {holder}; one writes at a time: ask again when it is done, "
        "or stop that process"
    )
