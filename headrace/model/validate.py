"""Checks a graph before anything runs: a tuple of rules, each of which raises PipelineError or passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import cloudpickle

from headrace.model.bundlefns import Bundles
from headrace.model.columnjoins import Join
from headrace.model.columns import Columnwise, TopRows
from headrace.model.elementwise import ParDo
from headrace.model.errors import PipelineError
from headrace.model.grouping import is_grouping
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Tag
from headrace.model.lakes import WriteLake
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sharded import Sharded
from headrace.model.sinks import ForEachArrow, WriteAvro, WriteCsv, WriteParquet
from headrace.model.state import TimerSpec
from headrace.model.tables import TableSink
from headrace.model.triggers import DefaultTrigger
from headrace.model.windows import CountWindows, GlobalWindows


def is_keyed(node: Node) -> bool:
    """Returns whether a node's input must be pairs (key, value)."""
    transform = node.transform
    return isinstance(transform, GroupByKey | CombinePerKey | Tag) or (
        isinstance(transform, ParDo) and transform.stateful
    )


def is_not_empty(graph: Graph) -> None:
    """Checks that there is a transform."""
    if not graph.nodes:
        raise PipelineError("the pipeline is empty: apply at least one transform, e.g. p | hr.Create([1])")


def labels_are_unique(graph: Graph) -> None:
    """Checks that no two nodes have the same label."""
    by_label: dict[str, list[Node]] = defaultdict(list)
    for node in graph:
        by_label[node.label].append(node)
    for label, nodes in by_label.items():
        if len(nodes) > 1:
            places = " and ".join(str(node.place) for node in nodes)
            raise PipelineError(f"the label {label!r} is used twice, at {places}: labels must differ, rename one")


def inputs_belong_to_the_graph(graph: Graph) -> None:
    """Checks that each input and side input is an output of the same pipeline."""
    outputs = {id(pc) for node in graph for pc in node.outputs}
    for node in graph:
        for pc in (*node.inputs, *node.transform.side_inputs()):
            if id(pc) not in outputs:
                raise PipelineError(f"{node}: it reads {pc!r} of another pipeline; build both on one Pipeline")


def keyed_inputs_are_pairs(graph: Graph) -> None:
    """Checks that the inputs of keyed transforms are pairs, where their types are known."""
    for node in filter(is_keyed, graph):
        (pc,) = node.inputs
        kind, schema = pc.element_type, pc.schema
        # Without a schema the type says too little; an element that is not a pair then fails in the run.
        if schema is not None and (schema.kind in ("value", "dataclass") or len(schema.names) != 2):
            name = getattr(kind, "__name__", kind) if isinstance(kind, type) else kind
            raise PipelineError(
                f"{node}: it needs pairs (key, value), but {pc.label!r} ({pc.place}) gives {name}; "
                "put KeyBy(...) or Map(lambda x: (key, value)) before it"
            )


def column_inputs_have_columns(graph: Graph) -> None:
    """Checks that the inputs of transforms of columns have columns."""
    for node in graph:
        needs = isinstance(node.transform, Columnwise | WriteCsv | WriteParquet | WriteAvro | WriteLake | ForEachArrow)
        for pc in (pc for pc in node.inputs if needs and not pc.has_columns):
            raise PipelineError(
                f"{node}: it needs columns, but {pc.label!r} ({pc.place}) gives Python objects of unknown type; "
                "declare them by the function's return type or .with_output_types(...): a NamedTuple, a dataclass or "
                "tuple[str, int]"
            )


def joined_windows_agree(graph: Graph) -> None:
    """Checks that the windows of what each Join joins agree, and that no row waits for the end of a stream."""
    for node in graph:
        if isinstance(node.transform, Join):
            try:
                node.transform.check(*node.inputs)
            except PipelineError as error:
                raise PipelineError(f"{node}: {error}") from None


def tables_have_named_columns(graph: Graph) -> None:
    """Checks that the elements written to each table have names for its columns."""
    for node in graph:
        if isinstance(node.transform, TableSink):
            node.transform.check(node.inputs[0])


def flattened_windows_agree(graph: Graph) -> None:
    """Checks that the inputs of each Flatten are in the same windows."""
    for node in graph:
        if isinstance(node.transform, Flatten):
            if not node.inputs:
                raise PipelineError(f"{node}: Flatten needs at least one collection")
            first = node.inputs[0]
            for pc in node.inputs[1:]:
                if pc.windowing.window != first.windowing.window:
                    raise PipelineError(
                        f"{node}: its inputs have different windows: {first.label!r} is in {first.windowing.window!r}, "
                        f"{pc.label!r} in {pc.windowing.window!r}; apply the same WindowInto to each"
                    )


def groupings_fire(graph: Graph) -> None:
    """Checks that no grouping waits for the end of an unbounded global window."""
    for node in filter(is_grouping, graph):
        pc: PCollection = node.inputs[0]
        waits = isinstance(pc.windowing.window, GlobalWindows) and isinstance(pc.windowing.trigger, DefaultTrigger)
        if waits and not pc.bounded:
            raise PipelineError(
                f"{node}: it would wait for ever: {pc.label!r} is unbounded, in the global window, with the default "
                "trigger; put WindowInto(FixedWindows(...)) or WindowInto(GlobalWindows(), trigger=...) before it"
            )


def windows_can_be_assigned(graph: Graph) -> None:
    """Checks that no first rows of groups are in count windows."""
    for node in graph:
        window = node.outputs[0].windowing.window if node.outputs else None
        if isinstance(window, CountWindows) and isinstance(node.transform, TopRows):
            raise PipelineError(
                f"{node}: {window!r} counts the elements of a key, and first rows have no such windows; use "
                "CombinePerKey(TopFn(...)), or windows of time"
            )


def side_inputs_have_a_window_per_instant(graph: Graph) -> None:
    """Checks that no side input is in merging or keyed windows, unless windows are mapped by the transform itself."""
    for node in graph:
        if isinstance(node.transform, Bundles | Sharded):
            continue
        for pc in node.transform.side_inputs():
            window = pc.windowing.window
            if window.merging or window.keyed:
                raise PipelineError(
                    f"{node}: its side input {pc.label!r} is in {window!r}, where an instant has no one window; "
                    "put it into the global window or into fixed windows first"
                )


def side_inputs_become_ready(graph: Graph) -> None:
    """Checks that no element waits for ever for an unbounded side input, unless the transform itself says when."""
    for node in graph:
        if isinstance(node.transform, Bundles | Sharded):
            continue
        for pc in node.transform.side_inputs():
            if pc.bounded:
                continue
            if pc.windowing.is_global and isinstance(pc.windowing.trigger, DefaultTrigger):
                raise PipelineError(
                    f"{node}: it would wait for ever: its side input {pc.label!r} is unbounded, in the global window, "
                    "with the default trigger; put WindowInto(GlobalWindows(), trigger=...) or "
                    "WindowInto(FixedWindows(...)) before it"
                )
            if node.inputs[0].windowing.is_global and not pc.windowing.is_global:
                raise PipelineError(
                    f"{node}: it would wait for ever: its input is in the global window, and no window of its side "
                    f"input {pc.label!r} contains the last instant of that; put its input into windows, or the side "
                    "input into GlobalWindows with a trigger"
                )


def timers_have_methods(graph: Graph) -> None:
    """Checks that each timer of a DoFn has a method that it calls."""
    for node in graph:
        if isinstance(node.transform, ParDo):
            fn = node.transform.fn
            fired = {
                method.fires.name
                for method in (getattr(type(fn), name) for name in dir(type(fn)))
                if hasattr(method, "fires")
            }
            for spec in fn.specs():
                if isinstance(spec, TimerSpec) and spec.name not in fired:
                    raise PipelineError(
                        f"{node}: its timer {spec.name!r} has no method to call; mark a method of {type(fn).__name__} "
                        "with @hr.on_timer(...)"
                    )


def functions_are_picklable(graph: Graph) -> None:
    """Checks that all that is sent to the workers can be pickled."""
    for node in graph:
        for fn in node.transform.functions():
            try:
                cloudpickle.dumps(fn)
            except Exception as error:  # a __reduce__ may raise anything
                raise PipelineError(
                    f"{node}: {getattr(fn, '__name__', fn)!r} cannot be pickled and so cannot be sent to the workers: "
                    f"{error}. It refers to an object that exists in this process only (a lock, a file, a connection, "
                    "a session); open that in DoFn.setup"
                ) from None


RULES: tuple[Callable[[Graph], None], ...] = (
    is_not_empty,
    labels_are_unique,
    inputs_belong_to_the_graph,
    keyed_inputs_are_pairs,
    column_inputs_have_columns,
    joined_windows_agree,
    tables_have_named_columns,
    flattened_windows_agree,
    groupings_fire,
    windows_can_be_assigned,
    side_inputs_have_a_window_per_instant,
    side_inputs_become_ready,
    timers_have_methods,
    functions_are_picklable,
)


def validate(graph: Graph) -> Graph:
    """Returns the graph if it passes every rule, else raises PipelineError."""
    for rule in RULES:
        rule(graph)
    return graph
