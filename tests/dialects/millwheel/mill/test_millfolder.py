"""The directory of a mill, without Spark: what is added, removed and discarded, files of computations, commands."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from headrace import millwheel as mw
from headrace.commands.main import main
from headrace.dialects.millwheel.mill.computationfile import load_computation
from headrace.dialects.millwheel.mill.computationstatus import ComputationStatus, Counts
from headrace.dialects.millwheel.mill.millfolder import Declared, MillFolder
from headrace.local.processlock import exclusive
from headrace.log import Log
from headrace.log.fences import Fence

WORDS = str(pathlib.Path(__file__).with_name("words.py"))


def test_computations_are_added_and_removed(tmp_path: pathlib.Path) -> None:
    folder = MillFolder(tmp_path)
    declared = Declared("sums", f"{WORDS}:Running", inputs=("numbers",), outputs=("sums",))
    assert folder.add(declared) == "it begins with the earliest records"
    with pytest.raises(mw.ComputationError, match=r"there is a computation 'sums' in .*; remove it first"):
        folder.add(declared)
    folder.checkpoint("sums").mkdir(parents=True)
    assert folder.remove("sums") == "its position is kept: add it again, and it goes on"
    with pytest.raises(mw.ComputationError, match=r"no computation 'sums' is in .*; there are: none"):
        folder.remove("sums")
    assert folder.add(declared) == "it goes on where it was removed"
    assert "its position is discarded" in folder.remove("sums", discard=True)
    assert not folder.checkpoint("sums").exists()
    assert folder.read("sums") is None
    assert folder.add(declared) == "it begins with the earliest records"
    with pytest.raises(mw.ComputationError, match="the name of a computation is letters, digits"):
        folder.add(Declared("a/b", None))


def test_what_runs_is_discarded_once_it_has_stopped(tmp_path: pathlib.Path) -> None:
    folder = MillFolder(tmp_path)
    folder.add(Declared("sums", f"{WORDS}:Running"))
    fence = Fence.take(folder.folder("sums") / "owner", 0)
    with exclusive(folder.lock("sums", fence.token), lambda holder: ValueError()):
        assert folder.owner("sums") is not None
        folder.remove("sums", discard=True)
        assert [each.wanted for each in folder.declared("discarded")] == ["discarded"]
        with pytest.raises(mw.ComputationError, match="is being discarded; add it again when that is done"):
            folder.add(Declared("sums", None))
        assert not folder.await_stop("sums", patience=0, sleep=lambda seconds: None)
        newer = Fence.take(folder.folder("sums") / "owner", 0)
        assert (newer.token, folder.owner("sums")) == (2, None)  # whoever takes it over holds another lock
    folder.discard_stopped()
    assert folder.read("sums") is None


def test_several_processes_may_discard_at_once(tmp_path: pathlib.Path) -> None:
    folders = [MillFolder(tmp_path) for _ in range(4)]
    for number in range(10):
        name = f"sums{number}"
        folders[0].add(Declared(name, f"{WORDS}:Running"))
        Log(folders[0].log).create(f"{name}..counts")
        (folders[0].checkpoint(name) / "spark").mkdir(parents=True)
        folders[0].declare(Declared(name, None, "discarded"))
        with ThreadPoolExecutor(len(folders)) as pool:
            for done in [pool.submit(folder.discard_stopped) for folder in folders]:
                done.result()
        assert folders[0].read(name) is None
        folders[0].publish_last(name, lambda: ComputationStatus("nobody asks for it"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("words.py", "'words.py' names no class in a file; write FILE.py:CLASS"),
        ("nowhere.py:Running", "there is no file nowhere.py"),
        (f"{WORDS}:Walking", r"words.py has no computation 'Walking'; there are: Running, Largest"),
        ("FOLDER/json.py:Running", "has the name of the module json"),
    ],
)
def test_files_of_computations(source: str, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "json.py").write_text("")
    with pytest.raises(mw.ComputationError, match=message):
        load_computation(source.replace("FOLDER", str(tmp_path)))


def test_commands_without_a_process_that_runs(tmp_path: pathlib.Path) -> None:
    def said(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["millwheel", *words, "--directory", str(tmp_path)])
        assert result.exit_code == code, result.output
        return result.output

    added = said("add", f"{WORDS}:Running", "--partitions", "2")
    assert added == (
        "added Running: it begins with the earliest records\ncreated the stream numbers\ncreated the stream sums\n"
    )
    assert len(Log(tmp_path / "log").topic("sums").partitions) == 2
    assert said("add", f"{WORDS}:Largest", "--name", "largest").endswith("created the stream largest\n")
    assert said("list") == "Running  waiting  numbers -> sums\nlargest  waiting  sums -> largest\n"
    MillFolder(tmp_path).publish(
        ComputationStatus("largest", "running", 7, low_watermark=5_000_000, keys=3, counts={"records": 4, "late": 1})
    )
    assert (
        "largest      waiting  -      1970-01-01T00:00:05Z  -       -    -       3     0       4        1 (25.00%)"
        in said("status")
    )
    assert "there is no computation 'none'" in said("status", "none", code=1)
    assert said("remove", "largest") == "removed largest; its position is kept: add it again, and it goes on\n"
    assert "no computation 'largest' is in" in said("remove", "largest", code=1)
    assert said("remove", "Running", "--discard").startswith("removed Running; its position is discarded")
    assert "'now' is not one of" in said("add", f"{WORDS}:Running", "--start", "now", code=2)


def test_counts_are_read_on(tmp_path: pathlib.Path) -> None:
    topic = Log(tmp_path).create("sums..counts")
    topic.append(0, topic.batch([{"records": 3, "late": 1}, {"records": 2}], timestamps=[0, 0]))
    counts = Counts(str(tmp_path), "sums")
    assert counts.read() == counts.read() == {"records": 5, "late": 1}
    topic.append(0, topic.batch([{"records": 1}], timestamps=[0]))
    again = Counts(str(tmp_path), "sums", counts.total.copy(), counts.offset)
    assert again.read() == {"records": 6, "late": 1}
    assert again.offset == 3
