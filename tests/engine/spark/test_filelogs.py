"""What file sources noted for a batch that never began is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.engine.spark.filelogs import forget_untaken
from headrace.engine.spark.files import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'
FILES = 'v1\n{"path":"file:///in/a.txt","timestamp":1,"batchId":0}'
STARTED = "v1\n1794724264047"


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        ([], {"1/0"}),
        (['{"logOffset":0}\n0\n-'], {"0/0", "1/0"}),
        (['{"logOffset":0}\n0\n-', '{"logOffset":1}\n7\n{"logOffset":0}'], {"0/0", "0/1", "1/0", "2/0"}),
        (['{"logOffset":9}\n0\n{"logOffset":0}'], {"0/0", "0/1", "0/9.compact", "1/0", "2/0"}),
    ],
    ids=["nothing", "first", "second", "all"],
)
def test_entries_behind_the_last_logged_batch_go(
    offsets: list[str], kept: set[str], spark: SparkSession, tmp_path: Path
) -> None:
    entries = {"0/0": FILES, "0/1": FILES, "0/9.compact": FILES, "1/0": STARTED, "2/0": FILES}
    for name, text in entries.items():
        (tmp_path / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sources" / name).write_text(text)
    for number, sources in enumerate(offsets):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(BATCH + sources)
    forget_untaken(Folder(spark, str(tmp_path)))
    assert {str(path.relative_to(tmp_path / "sources")) for path in (tmp_path / "sources").glob("*/*")} == kept


def test_a_new_checkpoint_has_nothing_to_forget(spark: SparkSession, tmp_path: Path) -> None:
    forget_untaken(Folder(spark, str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()
