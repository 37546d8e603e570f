"""Copies checkpoints. A copy is a checkpoint by itself: paths in it are paths of the copy, and its query has an id.

A checkpoint is copied while no batch is running: its files are never changed, and Spark removes only files that no
batch will read.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError

from headrace.engine.spark.filelogs import names_files, relocated
from headrace.engine.spark.files import Folder, copy_file
from headrace.local.privatefolder import make_folder
from headrace.model.errors import PipelineError

INITIAL: Final = "initial"
"""The folder of a checkpoint with the state that its stream begins with, until its first micro-batch is done."""

_METADATA: Final = "spark/metadata"
_MANIFESTS: Final = re.compile(r"headrace-\d+\.json")


def has_begun(checkpoint: Folder) -> bool:
    """Returns whether a micro-batch of a checkpoint's stream is done."""
    return any(name.isdigit() for name in checkpoint.folder("spark/commits").names())


@contextmanager
def copy(source: Folder, target: Folder, names: Iterable[str] | None = None) -> Iterator[Folder]:
    """Copies a checkpoint, or files of it; the copy appears whole under its name at the end of the `with` block.

    In an object store, manifests are copied last, and the first one, without which there is no checkpoint, at the end.
    """
    if target.exists():
        if target.files():
            raise PipelineError(
                f"there is something at {target} already; give the copy a directory of its own, or delete this one if "
                "it is a copy that was not completed"
            )
        target.delete()
    begun = has_begun(source)
    files = [
        name
        for name in (source.files() if names is None else names)
        if not (begun and name.startswith(f"{INITIAL}/"))  # which is needed no more
    ]
    if not target.renames:
        manifests = [name for name in files if _MANIFESTS.fullmatch(name)]
        for name in files:
            if name not in manifests:
                _copied(source, target, target, name)
        yield target
        for name in sorted(manifests, reverse=True):
            _copied(source, target, target, name)
        return
    new = Folder(target.spark, f"{target}.new")
    new.delete()
    if (local := new.local) is None:
        new.make()
    else:
        make_folder(local, exist_ok=False)
    for name in files:
        _copied(source, new, target, name)
    yield new
    for path in local.rglob("*") if local is not None else ():
        path.chmod(0o700 if path.is_dir() else 0o600)  # they were made by the umask of Spark's JVM
    new.rename(target)


def _copied(source: Folder, new: Folder, target: Folder, name: str) -> None:
    try:
        if name == _METADATA:
            # Spark lets one query of an id run at a time: it would stop the other.
            content = {**json.loads(source.read(name) or b"{}"), "id": str(uuid.uuid4())}
            new.folder("spark").write("metadata", json.dumps(content).encode())
        elif name.startswith("spark/") and names_files(name.removeprefix("spark/")):
            folder, _, file = name.rpartition("/")
            new.folder(folder).write(file, relocated(source.read(name) or b"", source, target))
        else:
            # Spark reads files of the checkpoint in the order of their times.
            copy_file(source, new, name, same_time=name.startswith("control/"))
    except Py4JJavaError:
        if source.exists(name):  # if it is gone, nobody needs it
            raise
