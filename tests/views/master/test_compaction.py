"""Compaction of master data: few files with the same records, whatever fails and whoever reads; and changed files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.engine.spark.files import Folder
from headrace.log import Log, Topic
from headrace.model.times import SECOND
from headrace.views.errors import ViewError
from headrace.views.feeds import feed_of
from headrace.views.master import compaction, masterfiles
from headrace.views.master.masterdata import Master
from tests.views.master.test_masterdata import NUMBERS, SCHEMA, Killed, append, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = {0: 9, 1: 5}
GRACE = 60


@pytest.fixture
def clock() -> list[int]:
    return [1_000 * SECOND]


@pytest.fixture(scope="module")
def four_steps(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and master data of four steps, over three days and none."""
    folder = tmp_path_factory.mktemp("archived")
    log = Log(folder / "log")
    topic = log.create("numbers", values=SCHEMA, partitions=2)
    for hours, others in (([1, 30], [2]), ([3, None], [31]), ([4, 33, -5], []), ([6, 35], [7, 36, None])):
        _append(topic, hours, others)
        Master(spark, feed_of(log, NUMBERS), path=f"{folder}/master").archive()
    return folder


@pytest.fixture
def archived(spark: SparkSession, four_steps: Path, tmp_path: Path, clock: list[int]) -> Callable[[], Master]:
    """Gives readers of a copy of it, which is as good: manifests do not say where they are."""
    shutil.copytree(four_steps, tmp_path, dirs_exist_ok=True)

    def master() -> Master:
        feed = feed_of(tmp_path / "log", NUMBERS)
        return Master(spark, feed, path=f"{tmp_path}/master", grace=GRACE, clock=lambda: clock[0])

    return master


def _append(topic: Topic, hours: list[Any], others: list[Any]) -> None:
    append(topic, 0, *hours)
    append(topic, 1, *others)


def content(master: Master) -> Counter[Any]:
    """All records with their places, read by their files as the manifests name them."""
    files = [master.uri(each) for each in master.files({}, ALL)]
    return Counter(
        tuple(row) for row in master.spark.read.parquet(*files).select("n", "at", "_partition", "_offset").collect()
    )


def parquet(folder: Path) -> list[Path]:
    return sorted(folder.glob("master/data/*/*/*.parquet"))


def test_a_crash_anywhere_leaves_all_records_once(
    archived: Callable[[], Master], tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, reader = content(archived()), archived()
    assert sum(before.values()) == 14
    held = [reader.uri(each) for each in reader.files({}, ALL)]

    def killed(*given: object, **named: object) -> None:
        raise Killed

    def killed_behind(function: Callable[..., Any]) -> Callable[..., None]:
        def call(*given: Any, **named: Any) -> None:
            function(*given, **named)
            raise Killed

        return call

    boundaries: list[tuple[Any, str, Any]] = [
        (masterfiles, "check_files", killed),  # before anything is written
        (masterfiles, "describe_files", killed),  # with all files written
        (compaction, "_content", killed),  # and known
        (masterfiles, "sync_files", killed),  # and compared
        (Folder, "put", killed),  # before the manifest
        (Folder, "put", killed_behind(Folder.put)),  # and behind it
    ]
    for where, name, dies in boundaries:
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(where, name, dies)
            archived().compact()
        assert content(archived()) == before, (where, name)
    assert archived().compact() is None  # it was done
    assert sum(Path(path.removeprefix("file:")).exists() for path in held) == len(held)  # who reads goes on

    after = archived()
    (base,) = after.steps()
    assert (base.number, base.since, base.until, base.records) == (3, {0: 0, 1: 0}, ALL, 14)
    assert len(held) > len(base.files) == 4  # one of each day
    assert numbers(after, {0: 2}, {0: 5, 1: 1}) == [2, 3, 4]  # as of any offsets still
    assert reader.reached() == ALL  # and by who knew the steps
    after.audit()

    topic = Log(tmp_path / "log").topic("numbers")
    append(topic, 0, 8)
    clock[0] += GRACE * SECOND  # from now on nobody reads the old files
    deleted: list[str] = []
    delete = Folder.delete

    def killed_later(folder: Folder) -> None:
        if len(deleted) == 3:
            raise Killed
        deleted.append(str(folder))
        delete(folder)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Folder, "delete", killed_later)
        archived().archive()
    assert content(archived()) == before
    archived().archive()
    assert [step.number for step in archived().steps()] == [3, 4]
    assert sum(content(archived()).values()) == 14
    assert numbers(archived(), {0: 9}, {0: 10}) == [8]
    names = sorted(path.name for path in (tmp_path / "master/manifests").iterdir() if not path.name.startswith("."))
    assert names == ["base-000003.json", "step-000004.json"]
    assert len(parquet(tmp_path)) == 5
    archived().audit()


def test_compacted_files_with_other_records_do_not_count(
    archived: Callable[[], Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, found = content(archived()), []
    real = compaction._content

    def other(records: Any) -> Any:
        found.append(real(records.withColumn("n", records.n + 1) if found else records))
        return found[-1]

    with monkeypatch.context() as patched, pytest.raises(ViewError, match="other records than the old ones"):
        patched.setattr(compaction, "_content", other)
        archived().compact()
    assert content(archived()) == before
    assert len(archived().steps()) == 4


def test_two_writers_at_once(archived: Callable[[], Master], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = archived(), archived()
    append(Log(tmp_path / "log").topic("numbers"), 0, 8)
    with first.exclusive(), pytest.raises(ViewError, match="one writes at a time"):
        second.archive()
    # Where there is no lock, as on object stores, the one that puts the manifest first has written the step.
    monkeypatch.setattr(Folder, "local", None)
    monkeypatch.setattr(Folder, "renames", False)
    one, two = archived(), archived()
    write = one._write

    def overtaken(*given: Any) -> Any:
        step = write(*given)
        two.archive()
        return step

    one._write = overtaken  # type: ignore[method-assign]
    with pytest.raises(ViewError, match=r"another process has written step-000004.json .*, and that one is valid"):
        one.archive()
    assert numbers(archived(), {0: 9}, {0: 10}) == [8]
    assert len(archived().steps()) == 5
    assert one.archive() is None  # it goes on from what the other has written, and what it left is removed
    assert len(list((tmp_path / "master/data").glob("step-000004-*"))) == 1


def test_files_that_were_changed_are_refused(archived: Callable[[], Master], tmp_path: Path) -> None:
    path = parquet(tmp_path)[-1]
    original = path.read_bytes()
    master = archived()
    other = Path(shutil.copy(path, path.with_name("other.parquet")))
    master.verify({}, ALL)
    assert sum(content(master).values()) == 14  # in no answer
    with pytest.raises(ViewError, match=r"not archived, such as .*/other\.parquet; no answer reads them: remove"):
        master.audit()
    other.unlink()
    for data, reason in (
        (original[:-9], f"should have {len(original)} bytes, but has {len(original) - 9}"),
        (original[:-8] + b"12345678", "is not Parquet"),
        (parquet(tmp_path)[0].read_bytes(), "should have"),
        (None, "is missing"),
    ):
        path.unlink() if data is None else path.write_bytes(data)
        with pytest.raises(ViewError, match=f"damaged: .*{path.name} {reason}.*; restore its files"):
            master.verify({}, ALL)
    path.write_bytes(original[:10] + bytes([original[10] ^ 1]) + original[11:])
    with pytest.raises(ViewError, match="has other bytes than were written"):
        master.audit()
    path.write_bytes(original)
    master.audit()


def test_a_batch_of_little_data_looks_at_little(
    archived: Callable[[], Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = masterfiles.pq.read_metadata

    def noted(path: Path) -> Any:
        opened.append(path.parts[-3])
        return read(path)

    monkeypatch.setattr(masterfiles.pq, "read_metadata", noted)
    archived().verify({0: 7, 1: 2}, ALL)
    assert {name[:11] for name in opened} == {"step-000003"}
    assert len(opened) == len(archived().steps()[-1].files)
