"""Messages of failures: label, element, the user's traceback first, and no more than 25 lines."""

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.worker.blame import WorkerFailure, blame, shorten, transform_error


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


def fail(element: object) -> str:
    with pytest.raises(WorkerFailure) as raised:
        elements = [1, 2, element, 4]
        cursor = iter(elements)
        with blame("label", elements, cursor):
            for current in cursor:
                if current is element:
                    raise KeyError("missing")
    return str(transform_error(raised.value))


def test_the_element_is_the_one_that_was_being_worked_on() -> None:
    assert fail("x").startswith("'label' failed on the element 'x': KeyError: 'missing'")


def test_elements_are_shortened_whatever_they_are() -> None:
    assert len(fail("y" * 10_000).splitlines()[0]) < 300
    assert "whose repr fails: no" in fail(Unprintable())
    assert len(shorten(list(range(10_000)))) == 200


def test_other_errors_are_not_taken_for_a_users() -> None:
    assert transform_error(RuntimeError("disk full")) is None


def deep(n: int) -> int:
    return deep(n - 1) if n else 1 // 0


def test_a_deep_traceback_fits_on_a_screen(spark: SparkSession) -> None:
    with pytest.raises(hr.TransformError) as raised, hr.Pipeline(spark=spark) as p:
        p | hr.Create([40]) | "dive" >> hr.Map(deep)
    lines = str(raised.value).splitlines()
    assert lines[0] == "'dive' failed on the element 40: ZeroDivisionError: integer division or modulo by zero"
    assert lines[1] == "Traceback (most recent call last):"
    assert "test_blame.py" in lines[2]
    assert len(lines) <= 25
    assert not any("pyspark" in line or "headrace/engine" in line for line in lines)
