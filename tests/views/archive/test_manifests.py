"""Manifests of master data: read back as written, in a chain, and refused when they were changed."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.local.processlock import LockHolder, lock_holder
from headrace.views.archive.manifests import ArchiveStep, LocalManifestFolder, Manifests, MasterFile
from headrace.views.archive.writerlock import exclusive_writer
from headrace.views.errors import ViewError


def file(number: int, first: int, last: int) -> MasterFile:
    return MasterFile(
        f"step-{number:06d}-ab/_day=2026-01-31/{first}.parquet", last - first + 1, 100, {0: (first, last)}, "d"
    )


def chain(folder: Path, *ends: int) -> list[ArchiveStep]:
    """Steps of one partition that end at these offsets, on a shelf."""
    steps: list[ArchiveStep] = []
    folder.mkdir(exist_ok=True)
    for number, end in enumerate(ends):
        since, before = (steps[-1].until, steps[-1].seal) if steps else ({0: 0}, "")
        files = (file(number, since[0], end - 1),) if end > since[0] else ()
        data = ArchiveStep(number, since, {0: end}, files=files, before=before).write()
        steps.append(ArchiveStep.read(data))
        (folder / steps[-1].name).write_bytes(data)
    return steps


def base(folder: Path, steps: list[ArchiveStep]) -> ArchiveStep:
    """A base in place of these steps, on the shelf."""
    last = steps[-1]
    files = (MasterFile("base-ab/_day=2026-01-31/x.parquet", last.until[0], 100, {0: (0, last.until[0] - 1)}),)
    made = ArchiveStep(last.number, {0: 0}, last.until, files=files, before=last.seal, replaced={"x": 5})
    (folder / made.name).write_bytes(made.write())
    return made


def read(folder: Path) -> list[ArchiveStep]:
    return Manifests(LocalManifestFolder(folder)).steps()


@given(
    st.lists(st.integers(0, 4), max_size=6),
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 25),
    st.integers(0, 25),
)
def test_a_reader_finds_each_offset_once_before_and_after_a_compaction(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], at: int, removed: bool, since: int, until: int
) -> None:
    folder = tmp_path_factory.mktemp("manifests")
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    reader = Manifests(LocalManifestFolder(folder))
    chain(folder, *ends[:at])
    assert sum(step.records for step in reader.steps()) == sum(sizes[:at])
    steps = chain(folder, *ends)
    if 0 < at <= len(steps):
        base(folder, steps[:at])
        if removed:
            for step in steps[:at]:
                (folder / step.name).unlink()
    for found in (reader.steps(), read(folder)):  # one that knew the steps, and one that comes new
        assert sum(step.records for step in found) == sum(sizes)
        meant = [offset for offset in range(sum(sizes)) if since <= offset < until]
        assert sum(step.count({0: since}, {0: until}) for step in found) == len(meant)
        files = [each for step in found for each in step.files if each.overlaps({0: since}, {0: until})]
        covered = [offset for each in files for offset in range(each.offsets[0][0], each.offsets[0][1] + 1)]
        assert sorted(offset for offset in covered if since <= offset < until) == meant


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


def test_manifests_that_were_changed_are_refused(tmp_path: Path) -> None:
    steps = chain(tmp_path, 3, 7, 9)
    original = {step.name: (tmp_path / step.name).read_bytes() for step in steps}
    assert [step.until for step in read(tmp_path)] == [{0: 3}, {0: 7}, {0: 9}]
    second = json.loads(original[steps[1].name])

    def changed(**held: object) -> bytes:
        return json.dumps({**second, "held": {**second["held"], **held}}).encode()

    sealed_anew = dataclasses.replace(steps[1], until={0: 8}, files=()).write()
    attacks: dict[str, tuple[bytes, str]] = {
        "offsets": (changed(until='{"0": 8}'), "not what was written"),
        "files": (changed(files=[]), "not what was written"),
        "a path out of the data": (changed(files=[["../../secret", 1, 1, [], None]]), "not what was written"),
        "sealed anew": (sealed_anew, "step 2 begins at {0: 7}, but the one before ended at {0: 8}"),
        "sealed anew, same offsets": (
            dataclasses.replace(steps[1], files=()).write(),
            "step 2 was not written after the manifest that now precedes it",
        ),
        "another step": (original[steps[0].name], "step-000001.json is the manifest step-000000.json"),
        "a pickle": (pickle.dumps(Bomb(tmp_path / "burst")), "not a manifest"),
        "half of it": (original[steps[1].name][:40], "not a manifest"),
        "nothing": (b"", "not a manifest"),
        "deep": (b"[" * 100_000, "not a manifest"),
        "a list": (b"[1]", "not a manifest"),
    }
    for data, reason in attacks.values():
        (tmp_path / steps[1].name).write_bytes(data)
        with pytest.raises(ViewError, match=r"is damaged: .*; restore its manifests") as error:
            read(tmp_path)
        assert reason in str(error.value)
    assert not (tmp_path / "burst").exists()

    (tmp_path / steps[1].name).unlink()
    with pytest.raises(ViewError, match="step 1 is missing, but step 2 exists"):
        read(tmp_path)
    (tmp_path / steps[1].name).write_bytes(original[steps[1].name])
    assert read(tmp_path) == steps


def test_master_data_of_another_format_is_refused_and_that_without_a_number_is_the_first(tmp_path: Path) -> None:
    chain(tmp_path, 5)
    manifest = tmp_path / "step-000000.json"
    held = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(held | {"format": 2}))
    refused = (
        r"the master data in .* has format 2, and this version of Headrace reads format 1.*archive the topic again"
    )
    with pytest.raises(ViewError, match=refused):
        read(tmp_path)
    del held["format"]
    manifest.write_text(json.dumps(held))
    assert [step.until for step in read(tmp_path)] == [{0: 5}]


def test_a_base_that_was_changed_is_refused(tmp_path: Path) -> None:
    made = base(tmp_path, chain(tmp_path, 3, 7))
    data = (tmp_path / made.name).read_bytes()
    (tmp_path / made.name).write_bytes(data.replace(b'"records"', b'"x"').replace(b"base-ab", b"base-cd"))
    with pytest.raises(ViewError, match=r"base-000001.json: it is not what was written"):
        read(tmp_path)


def _hold(folder: Path, ready: multiprocessing.Queue[int], end: multiprocessing.Queue[int]) -> None:
    with exclusive_writer(folder):
        ready.put(os.getpid())
        end.get()


def test_a_second_process_is_refused_by_the_name_of_the_first(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready: multiprocessing.Queue[int] = spawn.Queue()
    end: multiprocessing.Queue[int] = spawn.Queue()
    process = spawn.Process(target=_hold, args=(tmp_path, ready, end))
    process.start()
    other = ready.get(timeout=60)
    with (
        pytest.raises(ViewError, match=f"being written by process {other}; one writes at a time"),
        exclusive_writer(tmp_path),
    ):
        pass
    process.kill()  # whatever ends it
    process.join()
    with exclusive_writer(tmp_path):
        assert lock_holder(tmp_path / "lock") == LockHolder(os.getpid())
