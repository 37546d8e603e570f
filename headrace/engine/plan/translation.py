"""Translates nodes to operators: element-by-element nodes as steps of Python programs, of a batch or of a stream."""

from __future__ import annotations

from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.worker import operators
from headrace.engine.worker.bundleoperator import BundlesOperator
from headrace.engine.worker.guarded import GuardedOperator
from headrace.engine.worker.matchoperator import MatchOperator
from headrace.engine.worker.program import Readers, Step
from headrace.model.bundlefns import Bundles
from headrace.model.elementwise import (
    Elementwise,
    Filter,
    FlatMap,
    KeyBy,
    Map,
    MapTuple,
    ParDo,
    WithTimestamps,
)
from headrace.model.keyed import WindowInto
from headrace.model.matching import MatchQueries
from headrace.model.pipeline import Node
from headrace.model.sinks import ForEach


def operator(node: Node) -> operators.Operator:
    """Makes the operator of a node."""
    transform, label = node.transform, node.label
    if isinstance(transform, WindowInto):
        return operators.WindowOperator(label, transform.windowing.window)
    if isinstance(transform, WithTimestamps):
        return operators.TimesOperator(label, transform.fn)
    if isinstance(transform, ForEach):
        return operators.ForEachOperator(label, transform.fn)
    if isinstance(transform, MatchQueries):
        return MatchOperator.of(label, transform)
    if isinstance(transform, Bundles):
        return BundlesOperator(label, transform.fn, transform.sides)
    assert isinstance(transform, Elementwise), transform
    calling = _calling(label, transform)
    op = GuardedOperator(label, calling) if transform.handles_exceptions else calling
    if not isinstance(transform, ParDo):
        return op
    window = operators.WindowOperator(label, node.inputs[0].windowing.window)
    return operators.ParDoOperator(label, op, operators.LifeCycle(label, transform.fn, window, tags_of(transform)))


def _calling(label: str, transform: Elementwise) -> operators.CallOperator:
    call = call_of(transform)
    match transform:
        case ParDo():
            return operators.FlatMapOperator(label, call, tags_of(transform))
        case KeyBy():
            return operators.KeyByOperator(label, call)
        case Map():
            return operators.MapOperator(label, call)
        case FlatMap():
            return operators.FlatMapOperator(label, call)
        case Filter():
            return operators.FilterOperator(label, call)
    raise NotImplementedError(f"no operator for {transform!r}")


def stateful_fn(node: Node, transform: ParDo) -> StatefulFn:
    """Makes what runs a DoFn with state, in a batch or in a stream."""
    return StatefulFn(node.label, call_of(transform), transform.fn, node.inputs[0].windowing, tags_of(transform))


def step_of(node: Node, op: operators.Operator) -> Step:
    """Makes a step that nobody reads yet."""
    return Step(op, readers_of(node))


def readers_of(node: Node) -> dict[str | None, Readers]:
    """Makes the readers of a node's outputs, by tag; the first output is also what has no tag."""
    readers: dict[str | None, Readers] = {tag: Readers() for tag in {None, *node.transform.outputs}}
    readers[None] = readers[node.transform.outputs[0] if node.transform.outputs else None]
    return readers


def call_of(transform: Elementwise) -> operators.Call:
    """Makes the call of the user's function, with its further arguments; side inputs are bound when it runs."""
    fn = transform.fn.process if isinstance(transform, ParDo) else transform.fn
    return operators.Call(fn, tuple(transform.args), dict(transform.kwargs), star=isinstance(transform, MapTuple))


def tags_of(transform: ParDo) -> tuple[str, ...]:
    """Returns the tags of the further outputs."""
    return tuple(tag for tag in transform.outputs[1:] if tag is not None)
