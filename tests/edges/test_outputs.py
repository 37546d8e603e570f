"""Tests manifests: they say what was written to a directory of output, and find what has changed since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.commands.main import main
from headrace.edges.outputs import WrittenBatch, WrittenFile, seal
from headrace.engine.spark.files import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Elsewhere(Folder):
    """A directory that claims not to be on a local disk."""

    local = None


@pytest.fixture
def out(tmp_path: Path, spark: SparkSession) -> Path:
    """Writes the output of two batches."""
    path = tmp_path / "out"
    for number, lines in enumerate(["a\n", "b\nc\n"]):
        folder = path / f"batch-{number:06d}"
        folder.mkdir(parents=True)
        (folder / "part-0.txt").write_text(lines)
        (folder / "_SUCCESS").touch()
        seal(Folder(spark, str(folder)), stream="s", sink="save", batch=number, rows=len(lines) // 2)
    (path / ".batch-000002.new").mkdir()
    (path / ".batch-000002.new" / "part-0.txt").write_text("unfinished")
    return path


def test_what_was_written(out: Path) -> None:
    manifest = hr.written(str(out))
    assert manifest.rows == 3
    assert [(batch.stream, batch.sink, batch.batch, batch.rows) for batch in manifest.batches] == [
        ("s", "save", 0, 1),
        ("s", "save", 1, 2),
    ]
    assert manifest.files == [f"{out}/batch-000000/part-0.txt", f"{out}/batch-000001/part-0.txt"]
    assert manifest.verify() == []
    assert hr.written(f"file://{out}").verify() == []


def test_what_has_changed_is_found(out: Path) -> None:
    manifest = hr.written(str(out))
    (out / "batch-000000" / "part-0.txt").write_text("A\n")
    (out / "batch-000001" / "part-0.txt").write_text("b\n")
    (out / "batch-000001" / "part-1.txt").write_text("d\n")
    assert manifest.verify() == [
        f"{out}/batch-000000/part-0.txt has other bytes than were written",
        f"{out}/batch-000001/part-0.txt has 2 bytes, and had 4 when it was written",
        f"{out}/batch-000001/part-1.txt was not written by the sink",
    ]
    (out / "batch-000002").mkdir()
    assert manifest.verify()[3:] == [f"{out}/batch-000002 has no manifest: no sink has written it"]
    (out / "batch-000000" / "part-0.txt").unlink()
    assert manifest.verify()[0] == f"{out}/batch-000000/part-0.txt is missing"


def test_verify_on_the_command_line(out: Path) -> None:
    done = CliRunner().invoke(main, ["verify", str(out)])
    assert (done.exit_code, done.output) == (0, "3 rows in 2 batches, 2 files: as they were written\n")
    (out / "batch-000000" / "part-0.txt").unlink()
    done = CliRunner().invoke(main, ["verify", str(out)])
    assert (done.exit_code, done.output) == (1, f"{out}/batch-000000/part-0.txt is missing\n")
    done = CliRunner().invoke(main, ["verify", str(out.parent)])
    assert done.exit_code == 1
    assert "there is no manifest in" in done.output


def test_in_other_stores_sizes_are_compared(out: Path, spark: SparkSession) -> None:
    folder = out / "batch-000000"
    (folder / "_manifest.json").unlink()
    seal(Elsewhere(spark, str(folder)), stream=None, sink="save", batch=0, rows=1)
    [first, _] = hr.written(str(out)).batches
    assert first == WrittenBatch(None, "save", 0, 1, (WrittenFile("part-0.txt", 2),))
    assert hr.written(str(out)).verify() == []
    (folder / "part-0.txt").write_text("A\n")
    assert hr.written(str(out)).verify() == []
    (folder / "part-0.txt").write_text("longer\n")
    assert len(hr.written(str(out)).verify()) == 1


def test_a_batch_run_is_one_batch(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Pipeline(spark=spark) as p:
        words = p | hr.Create(["a", "b", "a"])
        words | "text" >> hr.WriteText(str(tmp_path / "text"))
        words | "json" >> hr.WriteJson(str(tmp_path / "json"))
        words | "parquet" >> hr.WriteParquet(str(tmp_path / "parquet"))
        p | hr.Create([]) | "nothing" >> hr.WriteText(str(tmp_path / "nothing"))
    for name, rows in [("text", 3), ("json", 3), ("parquet", 3), ("nothing", 0)]:
        manifest = hr.written(str(tmp_path / name))
        [batch] = manifest.batches
        assert (batch.stream, batch.sink, batch.batch, batch.rows) == (None, name, 0, rows)
        assert sorted(manifest.files) == sorted(map(str, (tmp_path / name).glob("part-*")))
        assert manifest.verify() == []


@pytest.mark.slow("several streams")
def test_every_micro_batch_of_a_stream_has_one(spark: SparkSession, tmp_path: Path) -> None:
    """Files are the only sink, which the last program writes, or one of several."""
    script = hr.TestStream().add(["a", "b"]).advance_watermark(5).add(["c"])
    for name, several in [("alone", False), ("among", True)]:
        p = hr.Pipeline(spark=spark)
        counted = p | script | hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always()) | hr.Count.per_element()
        counted | "save" >> hr.WriteText(str(tmp_path / name))
        if several:
            counted | hr.Collect()
        p.run().wait()
        manifest = hr.written(str(tmp_path / name))
        assert [(batch.batch, batch.rows) for batch in manifest.batches] == [(0, 2), (2, 1)]
        assert len({batch.stream for batch in manifest.batches}) == 1
        assert manifest.verify() == []
        lines = sorted(line for file in manifest.files for line in Path(file).read_text().splitlines())
        assert lines == ["('a', 1)", "('b', 1)", "('c', 1)"]
