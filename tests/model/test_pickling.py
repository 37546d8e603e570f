"""Tests pickles of users' objects: classes of modules, of functions, and of a script that runs as __main__."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model.pickling import classes_of_script, define_in_script, dumps

SCRIPT = """
from dataclasses import dataclass
from typing import NamedTuple
import headrace as hr

@dataclass(frozen=True)
class Key:
    name: str

class Value(NamedTuple):
    number: int
    what: object

def local():
    class Hidden:
        def __eq__(self, other): return True
    return Hidden()

with hr.Pipeline() as p:
    pairs = p | hr.Create(range(4)) | hr.Map(lambda n: (Key(str(n % 2)), Value(n, local())))
    groups = pairs | hr.GroupByKey() | hr.Collect()
    mixed = p | "mixed" >> hr.Create([Key("a"), Value(1, None), "text"]) | hr.Reshuffle()
    objects = mixed | hr.Map(type) | hr.Collect()
print(sorted((key.name, sorted(value.number for value in values)) for key, values in groups))
print(sorted(kind.__name__ for kind in objects))
"""


def test_a_class_of_a_function_is_pickled_by_value() -> None:
    class Local:
        x = 3

    assert pickle.loads(dumps(Local())).x == 3


def test_plain_values_are_plain_pickles() -> None:
    assert dumps([1, "a"]) == pickle.dumps([1, "a"], protocol=5)


def test_classes_are_defined_under_the_names_their_pickles_use() -> None:
    kind = type("MadeForThisTest", (), {"__module__": "__main__", "x": 4})
    define_in_script({"MadeForThisTest": kind})
    try:
        assert classes_of_script()["MadeForThisTest"] is kind
        assert pickle.loads(dumps(kind())).x == 4
    finally:
        delattr(sys.modules["__main__"], "MadeForThisTest")


@pytest.mark.slow("a driver of its own")
def test_classes_of_a_script_cross_every_stage(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["[('0', [0, 2]), ('1', [1, 3])]", "['Key', 'Value', 'str']"]
