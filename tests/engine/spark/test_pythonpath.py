"""Modules that workers import: those that were put on sys.path, whenever that was, and files that are sent to them."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.settings import Settings, using
from headrace.engine.spark.pythonpath import ship_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mapped(spark: SparkSession, fn: Any, *, stream: bool = False) -> list[int]:
    p = hr.Pipeline(spark=spark)
    numbers = p | hr.Create([1, 2]) | hr.Map(fn) | hr.Collect()
    p.run(stream=stream).wait()
    return sorted(numbers)


@pytest.mark.parametrize("stream", [False, True])
def test_a_module_put_on_the_path_after_the_session_began_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    name = f"put_on_the_path_{stream}".lower()
    (tmp_path / f"{name}.py").write_text("def tenfold(n):\n    return 10 * n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    assert mapped(spark, module.tenfold, stream=stream) == [10, 20]


def test_a_module_that_workers_cannot_import_is_named_with_the_remedy(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_in_memory")
    exec("def tenfold(n):\n    return 10 * n\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_in_memory", module)
    for stream in (False, True):
        with pytest.raises(hr.TransformError) as failure:
            mapped(spark, module.tenfold, stream=stream)
        (line,) = str(failure.value).splitlines()
        assert "the module 'only_in_memory', which Spark's Python workers cannot import" in line
        assert "--py-files" in line


def test_files_are_sent_to_workers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "sent_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tens.py").write_text("def tenfold(n):\n    return 10 * n\n")
    (tmp_path / "sent_module.py").write_text("from sent_package.tens import tenfold\n")

    def tenfold(n: int) -> int:
        from sent_module import tenfold  # type: ignore[import-not-found]

        return int(tenfold(n))

    with using(Settings(py_files=(str(package), str(tmp_path / "sent_module.py")))):
        assert mapped(spark, tenfold) == [10, 20]
    with pytest.raises(hr.PipelineError, match=r"--py-files takes \.py and \.zip files .*, got '.*missing\.py'"):
        ship_modules(spark, [f"{tmp_path}/missing.py"])
