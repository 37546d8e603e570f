"""Holds the project to its promises: the model knows no Spark, no file records where a package was downloaded
from, and the Makefile, the Java finder and the benchmarks can be used as CONTRIBUTING says.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale import only_full

ROOT = Path(__file__).parent.parent
MODEL = sorted(ROOT.glob("headrace/model/**/*.py"))
BENCHMARKS = sorted(ROOT.glob("bench/[!_]*.py"))

REFUSE_SPARK = """
import importlib, sys

class RefuseSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, RefuseSpark())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def output_of(*command: str, **environment: str) -> str:
    # Under `make test` the variables of the outer make would change what an inner one prints.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("modules", [["headrace"], [module_name(path) for path in MODEL]], ids=["headrace", "model"])
def test_imports_without_spark(modules: list[str]) -> None:
    output_of(sys.executable, "-c", REFUSE_SPARK, *modules)


@pytest.mark.parametrize("path", MODEL, ids=module_name)
def test_model_names_no_spark_even_inside_functions(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add((node.module or "").partition(".")[0])
    assert not imported & {"pyspark", "py4j"}


def test_no_file_records_a_download_address() -> None:
    address = re.compile(r"https?://[^\s\"'`)]*(?:/simple\b|\.whl|\.tgz|\.tar\.gz|\.jar|/maven2\b)|files\.pythonhosted")
    # CI may run as another user than the one who owns the checkout.
    listing = output_of("git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z")
    files = [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]
    assert ROOT / "pyproject.toml" in files
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in files
        if (match := address.search(path.read_text("utf-8", errors="ignore")))
    }
    assert found == {}


def test_make_alone_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    declared = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert declared
    listed = re.findall(r"^ *make (\w+) +\S", output_of("make"), flags=re.MULTILINE)
    assert listed == declared[1].split()
    assert {"demo", "test"} <= set(listed)


@pytest.mark.parametrize("java_home", ["", "/nonexistent"])
def test_java_is_found_without_the_help_of_java_home(java_home: str) -> None:
    found = output_of("scripts/with-java", "printenv", "JAVA_HOME", JAVA_HOME=java_home).strip()
    assert Path(found, "bin", "java").exists()


def test_there_is_a_batch_benchmark() -> None:
    assert ROOT / "bench/batch.py" in BENCHMARKS


@only_full("nobody measures in every run")
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_benchmarks_can_be_quick(path: Path) -> None:
    assert "--quick" in output_of(sys.executable, str(path), "--help")
