"""From nodes to operators: what an element-by-element node is in a Python program, of a batch or of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.engine.worker import operators
from headrace.engine.worker.guarded import GuardedOp, GuardedParDoOp
from headrace.engine.worker.program import Readers, Step
from headrace.engine.worker.sidevalues import SideValue
from headrace.model.elementwise import (
    AsSingleton,
    Elementwise,
    Filter,
    FlatMap,
    KeyBy,
    Map,
    MapTuple,
    ParDo,
    SideInput,
    WithTimestamps,
)
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.sinks import ForEach

Side = Callable[[PCollection], Any]
"""Says where the elements of a side input are to be read from."""


def operator(node: Node, side: Side) -> operators.Op:
    """The operator of a node."""
    transform, label = node.transform, node.label
    if isinstance(transform, WindowInto):
        return operators.WindowOp(label, transform.windowing.window)
    if isinstance(transform, WithTimestamps):
        return operators.TimesOp(label, transform.fn)
    if isinstance(transform, ForEach):
        return operators.ForEachOp(label, transform.fn)
    assert isinstance(transform, Elementwise), transform
    call, guarded = call_of(transform, side), transform.handles_exceptions
    if isinstance(transform, ParDo):
        kind = GuardedParDoOp if guarded else operators.ParDoOp
        return kind(label, call, tags_of(transform), fn=transform.fn, window=window_of(node))
    op = _plain(label, call, transform)
    return GuardedOp(label, call, op=op) if guarded else op


def _plain(label: str, call: operators.Call, transform: Elementwise) -> operators.CallOp:
    match transform:
        case KeyBy():
            return operators.KeyByOp(label, call)
        case Map():
            return operators.MapOp(label, call)
        case FlatMap():
            return operators.FlatMapOp(label, call)
        case Filter():
            return operators.FilterOp(label, call)
    raise NotImplementedError(f"no operator for {transform!r}")


def step_of(node: Node, op: operators.Op) -> Step:
    """A step that nobody reads yet; the first of the node's outputs is also what has no tag."""
    step = Step(op, {tag: Readers() for tag in {None, *node.transform.outputs}})
    main = node.transform.outputs[0] if node.transform.outputs else None
    step.readers[None] = step.readers[main]
    return step


def call_of(transform: Elementwise, side: Side) -> operators.Call:
    """The user's function with its further arguments."""

    def argument(given: Any) -> Any:
        if not isinstance(given, SideInput):
            return given
        pc = given.collection
        default = given.default if isinstance(given, AsSingleton) else ...
        return SideValue(pc.label, given.shape, pc.windowing.window, default, side(pc))

    fn = transform.fn.process if isinstance(transform, ParDo) else transform.fn
    args = tuple(map(argument, transform.args))
    kwargs = {name: argument(given) for name, given in transform.kwargs.items()}
    return operators.Call(fn, args, kwargs, star=isinstance(transform, MapTuple))


def window_of(node: Node) -> operators.WindowOp:
    """What puts elements of no window into those of the node's input."""
    return operators.WindowOp(node.label, node.inputs[0].windowing.window)


def tags_of(transform: ParDo) -> tuple[str, ...]:
    """The tags of the further outputs."""
    return tuple(tag for tag in transform.outputs[1:] if tag is not None)
