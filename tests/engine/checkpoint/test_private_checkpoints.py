"""Checkpoints and savepoints are this user's only: state may contain pickles, so whoever writes one runs code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.local.privatefolder import UntrustedPath
from tests.local.attacker import NOBODY, reachable_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as made:
        yield made


def run(spark: SparkSession, folder: Path, **options: Any) -> Any:
    p = hr.Pipeline(spark=spark)
    lines = p | hr.ReadText(f"{folder}/in/*.txt") | hr.FlatMap(str.split)
    lines | hr.Count.per_element() | hr.ForEachBatch(lambda elements, batch: None)
    return p.run(stream=True, **{name: str(path) for name, path in options.items()})


def mode_of(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:o}"


@pytest.mark.slow("a stream is started four times")
def test_checkpoints_and_savepoints_are_closed_to_others_and_open_ones_are_refused(
    spark: SparkSession, folder: Path
) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "1.txt").write_text("to be\nor not\nto be")
    handle = run(spark, folder, checkpoint=folder / "new" / "checkpoint")
    handle.query.processAllAvailable()
    handle.savepoint(str(folder / "savepoint"))
    handle.stop()
    assert [mode_of(folder / name) for name in ("new", "new/checkpoint", "savepoint")] == ["700"] * 3
    # What Spark's JVM made in it has the modes of its umask, which do not matter behind a closed door.
    assert {mode_of(path) for path in (folder / "savepoint").rglob("*")} == {"700", "600"}

    # As an earlier version made it: others may read.
    (folder / "new" / "checkpoint").chmod(0o755)
    (folder / "new").chmod(0o755)
    handle = run(spark, folder, checkpoint=folder / "new" / "checkpoint")
    handle.stop()

    state = next(path for path in (folder / "new" / "checkpoint" / "spark" / "state").rglob("*.*") if path.is_file())
    for changed in (folder / "new" / "checkpoint", state):
        before = changed.stat().st_mode
        changed.chmod(0o777)
        with pytest.raises(UntrustedPath, match=f"{changed} has mode 0777 .*chmod"):
            run(spark, folder, checkpoint=folder / "new" / "checkpoint")
        changed.chmod(before)
        if os.geteuid() == 0:
            os.chown(changed, NOBODY, NOBODY)
            with pytest.raises(UntrustedPath, match=f"{changed} .* belongs to nobody"):
                run(spark, folder, checkpoint=folder / "new" / "checkpoint")
            os.chown(changed, 0, 0)

    (folder / "savepoint").chmod(0o777)
    with pytest.raises(UntrustedPath, match="savepoint has mode 0777"):
        run(spark, folder, checkpoint=folder / "restored", savepoint=folder / "savepoint")
    assert not (folder / "restored").exists()
    (folder / "savepoint").chmod(0o700)
    handle = run(spark, folder, checkpoint=folder / "restored", savepoint=folder / "savepoint")
    # A copy is not written to a place that somebody has prepared for it.
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    with pytest.raises(UntrustedPath, match="open has mode 0777"):
        handle.savepoint(str(folder / "open" / "savepoint"))
    handle.stop()
    assert list((folder / "open").iterdir()) == []
    assert mode_of(folder / "restored") == "700"
