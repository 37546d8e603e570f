"""`headrace pack`, as a command, and what its archives have."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.commands.main import main
from headrace.engine.spark.environmentarchive import ARCHIVE, FOLDER, archive_settings, python_name
from headrace.engine.spark.pythonpath import _modules_of, _own_folders


def test_packages_can_be_imported_from_the_archive_by_another_python(tmp_path: Path) -> None:
    archive = tmp_path / "packages.tar.gz"
    done = CliRunner().invoke(main, ["pack", str(archive), "--only", "python-dateutil", "--only", "cloudpickle"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"{archive}: 3 packages, ") and done.stdout.endswith(f" MB, for {python_name()}\n")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path / FOLDER, filter="data")
    code = "import cloudpickle, dateutil.tz, six; print(cloudpickle.__file__, dateutil.__file__, six.__file__)"
    bare = [sys.executable, "-S", "-c", code]  # without the packages of this environment
    found = subprocess.run(
        bare, cwd=tmp_path, env={"PYTHONPATH": f"{FOLDER}/{python_name()}"}, capture_output=True, text=True, check=True
    )
    assert all(f"{FOLDER}/{python_name()}/" in file for file in found.stdout.split())


def test_an_archive_has_no_pyspark_and_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "packages.tgz"
    assert CliRunner().invoke(main, ["pack", str(archive), "--only", "pyspark", "--only", "tzdata"]).exit_code == 0
    with tarfile.open(archive) as files:
        names = files.getnames()
    assert all(name.startswith(f"{python_name()}/") and ".." not in name for name in names)
    assert not [name for name in names if "pyspark" in name or "/bin/" in name or name.endswith((".pyc", ".pth"))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.zip"], "an archive that Spark unpacks ends with .tar.gz, got 'a.zip'"),
        (["a.tar.gz", "--only", "no-such-package"], "the package 'no-such-package' is not installed here; pip install"),
        (["a.tar.gz", "--only", "no such thing"], "no such thing"),
        (["/no/such/place/a.tar.gz", "--only", "six"], "No such file or directory"),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["pack", *arguments])
    assert done.exit_code == 1 and message in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_option_names_the_archive_for_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ARCHIVE, "")
    (tmp_path / "script.py").write_text(f"import os; print(os.environ['{ARCHIVE}'])")
    done = CliRunner().invoke(main, ["run", "--archive", "x.tar.gz", str(tmp_path / "script.py")])
    assert done.stdout == "x.tar.gz\n"
    (tmp_path / "x.tar.gz").touch()
    settings = archive_settings(str(tmp_path / "x.tar.gz"))
    assert settings["spark.archives"] == f"{tmp_path / 'x.tar.gz'}#{FOLDER}"
    assert archive_settings("hdfs:///x.tar.gz")["spark.archives"] == f"hdfs:///x.tar.gz#{FOLDER}"


def test_modules_beside_a_script_are_found_and_no_others(tmp_path: Path) -> None:
    for name in ("one.py", "two.txt", "package/__init__.py", "package/inner/deep.py", "folder/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in _modules_of(tmp_path)]
    assert found == ["one.py", "package/__init__.py", "package/inner/deep.py"]
    assert _own_folders([os.devnull, str(tmp_path / "missing"), str(tmp_path), *sys.path[-1:]])[0] == tmp_path
