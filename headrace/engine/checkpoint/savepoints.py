"""Copies checkpoints. A copy is a checkpoint by itself: paths in it are paths of the copy, and its query has an id.

A checkpoint is copied while no batch is running: its files are never changed, and Spark removes only files that no
batch will read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError

from headrace.engine.spark.filelogs import names_files, relocated
from headrace.engine.spark.files import Folder, copy_file
from headrace.local.privatefolder import make_folder
from headrace.model.errors import PipelineError

_METADATA: Final = "spark/metadata"


@contextmanager
def copy(source: Folder, target: Folder) -> Iterator[Folder]:
    """Copies a checkpoint; the copy appears whole under its name at the end of the `with` block."""
    if target.exists():
        if target.files():
            raise PipelineError(f"there is something at {target} already; give the copy a directory of its own")
        target.delete()
    new = Folder(target.spark, f"{target}.new")
    new.delete()
    if (local := new.local) is None:
        new.make()
    else:
        make_folder(local, exist_ok=False)
    for name in source.files():
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
