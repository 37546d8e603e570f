"""Writes and verifies manifests of output: each directory that a sink of files wrote has one.

A manifest is written before the rename that makes its directory appear, so it exists exactly if the output does. In an
object store, which has no such rename, it is written last, and what has none is no output. It names stream, sink and
batch, and each file with its size and, for files on a local disk, the checksum of its bytes; other stores have
checksums of their own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    from pyarrow import fs

MANIFEST: Final = "_manifest.json"
"""The name of the manifest of a directory."""
_CHUNK: Final = 1 << 20


class Folder(Protocol):
    """A directory on any file system, into which a manifest is written."""

    @property
    def local(self) -> Path | None: ...

    def sizes(self) -> list[tuple[str, int]]: ...

    def write(self, name: str, data: bytes) -> None: ...


@dataclass(frozen=True)
class WrittenFile:
    """A file of output: its name, its size in bytes, and their CRC-32, if it was computed."""

    name: str
    bytes: int
    crc32: int | None = None


@dataclass(frozen=True)
class WrittenBatch:
    """The manifest of what one micro-batch wrote, or a batch run, which has no stream and is batch 0."""

    stream: str | None
    sink: str
    batch: int
    rows: int
    files: tuple[WrittenFile, ...]

    def write(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def read(cls, data: bytes) -> WrittenBatch:
        """Decodes what `write` encoded.

        >>> batch = WrittenBatch("a", "save", 7, 2, (WrittenFile("part-0", 10, 123),))
        >>> WrittenBatch.read(batch.write()) == batch
        True
        """
        fields = json.loads(data)
        return cls(**{**fields, "files": tuple(WrittenFile(**file) for file in fields["files"])})


@dataclass(frozen=True)
class OutputManifest:
    """The manifests of the output in a directory, batch by batch; `folders` has the directory of each."""

    path: str
    batches: tuple[WrittenBatch, ...]
    folders: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows in all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def files(self) -> list[str]:
        """The paths of all files."""
        return [
            f"{folder}/{file.name}"
            for folder, batch in zip(self.folders, self.batches, strict=True)
            for file in batch.files
        ]

    def verify(self) -> list[str]:
        """Returns a line for each file that is not as it was written."""
        system, root = _opened(self.path)
        differences = [
            wrong
            for folder, batch in zip(self.folders, self.batches, strict=True)
            for wrong in _differences(system, folder, batch)
        ]
        others = [] if root in self.folders else _outputs(system, root)
        unknown = [info.path for info in others if info.path not in self.folders]
        return [*differences, *(f"{path} has no manifest: no sink has written it" for path in unknown)]


def read_manifest(path: str) -> OutputManifest:
    """Reads the manifests of a directory of output; `verify()` of the result compares the files with them.

    >>> import headrace as hr, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create(["a", "b"]) | "save" >> hr.WriteText(out)
    >>> manifest = hr.read_manifest(out)
    >>> manifest.rows, manifest.batches[0].sink, manifest.verify()
    (2, 'save', [])
    """
    system, root = _opened(path)
    folders = [root, *(info.path for info in _outputs(system, root) if not info.is_file)]
    manifests = {folder: data for folder in folders if (data := _read(system, f"{folder}/{MANIFEST}")) is not None}
    if not manifests:
        raise FileNotFoundError(
            f"there is no manifest in {path!r} or a directory in it; give the path of a directory that a sink of "
            "files wrote"
        )
    return OutputManifest(path, tuple(map(WrittenBatch.read, manifests.values())), tuple(manifests))


written = read_manifest  # the name it had first


def seal(folder: Folder, *, stream: str | None, sink: str, batch: int, rows: int) -> None:
    """Writes the manifest of a directory whose files are complete."""
    local = folder.local
    if local is None:
        files = [WrittenFile(name, size) for name, size in folder.sizes() if is_output(name)]
        folder.write(MANIFEST, _written(stream, sink, batch, rows, files))
    else:
        files = [measured(path) for path in local.iterdir() if is_output(path.name)]
        seal_local(local, stream=stream, sink=sink, batch=batch, rows=rows, files=files)


def seal_local(
    folder: Path, *, stream: str | None, sink: str, batch: int, rows: int, files: Sequence[WrittenFile]
) -> None:
    """Writes the manifest of a directory on a local disk, whose files are these."""
    # Nobody reads it before the directory is renamed.
    (folder / MANIFEST).write_bytes(_written(stream, sink, batch, rows, files))


def _written(stream: str | None, sink: str, batch: int, rows: int, files: Sequence[WrittenFile]) -> bytes:
    return WrittenBatch(stream, sink, batch, rows, tuple(sorted(files, key=lambda file: file.name))).write()


def is_output(name: str) -> bool:
    """Tells whether a file is one of output and not hidden, as Spark's own readers decide."""
    return not name.startswith(("_", "."))


def measured(path: Path) -> WrittenFile:
    """Describes a file as it is, with its checksum."""
    with path.open("rb") as file:
        return WrittenFile(path.name, path.stat().st_size, _crc32(file))


def _crc32(file: BinaryIO) -> int:
    crc = 0
    while chunk := file.read(_CHUNK):
        crc = zlib.crc32(chunk, crc)
    return crc


def _differences(system: fs.FileSystem, folder: str, batch: WrittenBatch) -> Iterator[str]:
    files = {info.base_name: info for info in _outputs(system, folder)}
    for file in batch.files:
        place = f"{folder}/{file.name}"
        info = files.pop(file.name, None)
        if info is None:
            yield f"{place} is missing"
        elif info.size != file.bytes:
            yield f"{place} has {info.size:,} bytes, and had {file.bytes:,} when it was written"
        elif file.crc32 is not None:
            with system.open_input_stream(place, compression=None) as opened:
                same = _crc32(opened) == file.crc32
            if not same:
                yield f"{place} has other bytes than were written"
    yield from (f"{folder}/{name} was not written by the sink" for name in sorted(files))


def _opened(path: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs  # slow to import

    if "://" in path or path.startswith("file:"):
        system, root = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
        return system, root
    return fs.LocalFileSystem(), path.rstrip("/") or "/"


def _outputs(system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    """Lists the files and directories in a directory that are not hidden, by name."""
    from pyarrow import fs

    infos: list[fs.FileInfo] = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted((info for info in infos if is_output(info.base_name)), key=lambda info: info.path)


def _read(system: fs.FileSystem, path: str) -> bytes | None:
    try:
        with system.open_input_stream(path, compression=None) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None
