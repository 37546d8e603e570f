"""Declarations of computations: what is refused when the class is made, and outside of callbacks."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import millwheel as mw

KEY = mw.key("k")


def process_record(self: Any, record: mw.Record) -> None: ...


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"inputs": {}}, "Declared: inputs maps the streams it subscribes to to keys, got {}"),
        ({"inputs": ["a"]}, "Declared: inputs maps the streams it subscribes to to keys, got ['a']"),
        ({"inputs": {"a": "k"}}, "the input 'a' needs a key, got 'k'; write mw.key(...)"),
        ({"outputs": "b"}, "outputs is a tuple of names, got 'b'; write outputs = ('b',)"),
        ({"outputs": ("b", "b")}, "outputs must differ, and none is called 'counts', got ('b', 'b')"),
        ({"outputs": ("counts",)}, "outputs must differ, and none is called 'counts'"),
        ({"outputs": ("a",)}, "'a' is an input and an output, so that its low watermark would wait for itself"),
        ({"late": "keep"}, "late is 'drop' or 'process', got 'keep'"),
        (
            {"productions": "weak", "outputs": ("kafka://127.0.0.1:9092/b",)},
            "cannot be fenced in Kafka, and 'kafka://127.0.0.1:9092/b' is a topic of it; leave productions",
        ),
        ({"productions": "medium"}, "productions is 'strong' or 'weak', got 'medium'"),
        ({"process_record": mw.Computation.process_record}, "it has no process_record(self, record); define it"),
        ({"produce": mw.Persistent(int)}, "a state cannot be called 'produce'; choose another name"),
        ({"_hidden": mw.Persistent(int)}, "a state cannot be called '_hidden'; choose another name"),
    ],
)
def test_declarations_are_checked(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(mw.ComputationError) as refused:
        type("Declared", (mw.Computation,), {"inputs": {"a": KEY}, "process_record": process_record, **declared})
    assert message in str(refused.value)


def test_what_is_inherited_need_not_be_whole() -> None:
    class Counting(mw.Computation):
        seen = mw.Persistent(int)

    class Words(Counting):
        inputs = {"words": KEY}
        outputs = {"counts-by-word": "word"}
        process_record = process_record

    assert repr(Words()) == "<Words: words -> counts-by-word>"


def test_persistents_are_of_a_type() -> None:
    with pytest.raises(mw.ComputationError, match="Persistent takes the type of the state, got 7"):
        mw.Persistent(7)  # type: ignore[arg-type]
    with pytest.raises(mw.ComputationError, match="default is a function that makes the first value of a key, got 7"):
        mw.Persistent(int, 7)  # type: ignore[arg-type]


def test_keys_are_functions_or_names() -> None:
    with pytest.raises(mw.ComputationError, match="key takes a function of the record or the name of a field"):
        mw.key(7)  # type: ignore[arg-type]
    with pytest.raises(hr.PipelineError, match="key: watermark must be a policy, got '10 seconds'"):
        mw.key("k", watermark="10 seconds")  # type: ignore[arg-type]


class Lonely(mw.Computation):
    inputs = {"a": KEY}
    outputs = ("b",)
    seen = mw.Persistent(int)
    process_record = process_record


def test_nothing_of_a_key_exists_outside_of_a_callback() -> None:
    lonely = Lonely()
    lonely.limit = 7  # type: ignore[attr-defined]  # what all keys share is set before a run
    actions: dict[str, Any] = {
        "Lonely.seen is state of a key, which exists in process_record": lambda: lonely.seen,
        "process_timer of that key only; change it there": lambda: setattr(lonely, "seen", 1),
        "key only; change it": lambda: delattr(lonely, "seen"),
        "Lonely.produce is for callbacks": lambda: lonely.produce("b", 1),
        "Lonely.set_timer is for callbacks": lambda: lonely.set_timer(1),
        "Lonely.low_watermark is for callbacks": lambda: lonely.low_watermark,
    }
    for message, action in actions.items():
        with pytest.raises(mw.ComputationError, match=message):
            action()
