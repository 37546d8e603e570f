"""What must hold of a graph before anything runs: a tuple of rules, each of which raises PipelineError or passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import cloudpickle

from headrace.model.columns import Columnwise
from headrace.model.elementwise import ParDo
from headrace.model.errors import PipelineError
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Tag
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import ForEachArrow, WriteParquet
from headrace.model.state import TimerSpec
from headrace.model.triggers import DefaultTrigger
from headrace.model.windows import CountWindows, GlobalWindows


def is_keyed(node: Node) -> bool:
    """Whether a node needs pairs (key, value)."""
    transform = node.transform
    return isinstance(transform, GroupByKey | CombinePerKey | Tag) or (
        isinstance(transform, ParDo) and transform.stateful
    )


def is_grouping(node: Node) -> bool:
    """Whether a node waits for the elements of a window."""
    return isinstance(node.transform, GroupByKey | CombinePerKey) or type(node.transform).__name__ == "Aggregate"


def not_empty(graph: Graph) -> None:
    if not graph.nodes:
        raise PipelineError("the pipeline is empty: apply at least one transform, e.g. p | hr.Create([1])")


def labels_differ(graph: Graph) -> None:
    by_label: dict[str, list[Node]] = defaultdict(list)
    for node in graph:
        by_label[node.label].append(node)
    for label, nodes in by_label.items():
        if len(nodes) > 1:
            places = " and ".join(str(node.place) for node in nodes)
            raise PipelineError(f"the label {label!r} is used twice, at {places}: labels must differ, rename one")


def inputs_are_there(graph: Graph) -> None:
    made = {id(pc) for node in graph for pc in node.outputs}
    for node in graph:
        for pc in (*node.inputs, *node.transform.side_inputs()):
            if id(pc) not in made:
                raise PipelineError(f"{node}: it reads {pc!r} of another pipeline; build both on one Pipeline")


def keyed_inputs_are_pairs(graph: Graph) -> None:
    for node in filter(is_keyed, graph):
        (pc,) = node.inputs
        kind, schema = pc.element_type, pc.schema
        # Types without a schema tell too little; what is no pair then shows when it comes.
        if schema is not None and (schema.kind in ("value", "dataclass") or len(schema.names) != 2):
            shown = getattr(kind, "__name__", kind) if isinstance(kind, type) else kind
            raise PipelineError(
                f"{node}: it needs pairs (key, value), but {pc.label!r} ({pc.place}) gives {shown}; "
                "put KeyBy(...) or Map(lambda x: (key, value)) before it"
            )


def column_inputs_have_columns(graph: Graph) -> None:
    for node in graph:
        if isinstance(node.transform, Columnwise | WriteParquet | ForEachArrow) and not node.inputs[0].has_columns:
            pc = node.inputs[0]
            raise PipelineError(
                f"{node}: it needs columns, but {pc.label!r} ({pc.place}) gives Python objects of unknown type; "
                "declare them by the function's return type or .with_output_types(...): a NamedTuple, a dataclass or "
                "tuple[str, int]"
            )


def windows_agree(graph: Graph) -> None:
    for node in graph:
        if isinstance(node.transform, Flatten):
            if not node.inputs:
                raise PipelineError(f"{node}: Flatten needs at least one collection")
            first = node.inputs[0]
            for other in node.inputs[1:]:
                if other.windowing.window != first.windowing.window:
                    raise PipelineError(
                        f"{node}: its inputs have different windows: {first.label!r} is in {first.windowing.window!r}, "
                        f"{other.label!r} in {other.windowing.window!r}; apply the same WindowInto to each"
                    )


def groupings_end(graph: Graph) -> None:
    for node in filter(is_grouping, graph):
        pc: PCollection = node.inputs[0]
        waits = isinstance(pc.windowing.window, GlobalWindows) and isinstance(pc.windowing.trigger, DefaultTrigger)
        if waits and not pc.bounded:
            raise PipelineError(
                f"{node}: it would wait for ever: {pc.label!r} is unbounded, in the global window, with the default "
                "trigger; put WindowInto(FixedWindows(...)) or WindowInto(GlobalWindows(), trigger=...) before it"
            )


def windows_can_be_assigned(graph: Graph) -> None:
    for node in graph:
        window = node.outputs[0].windowing.window if node.outputs else None
        if isinstance(window, CountWindows) and isinstance(node.transform, Columnwise) and is_grouping(node):
            raise PipelineError(
                f"{node}: {window!r} counts the elements of a key and works with GroupByKey and CombinePerKey only"
            )


def side_inputs_have_one_window(graph: Graph) -> None:
    for node in graph:
        for pc in node.transform.side_inputs():
            window = pc.windowing.window
            if window.merging or window.keyed:
                raise PipelineError(
                    f"{node}: its side input {pc.label!r} is in {window!r}, where no window belongs to an instant; "
                    "put it into the global window or into fixed windows first"
                )


def side_inputs_are_seen(graph: Graph) -> None:
    for node in graph:
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
                    f"{node}: it would wait for ever: its input is in the global window, whose last instant no window "
                    f"of its side input {pc.label!r} will hold; put its input into windows, or the side input into "
                    "GlobalWindows with a trigger"
                )


def timers_have_methods(graph: Graph) -> None:
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
                        f"{node}: its timer {spec.name!r} would fire nothing; mark a method of {type(fn).__name__} "
                        "with @hr.on_timer(...)"
                    )


def functions_travel(graph: Graph) -> None:
    for node in graph:
        for fn in node.transform.functions():
            try:
                cloudpickle.dumps(fn)
            except Exception as error:  # whatever a __reduce__ may raise
                raise PipelineError(
                    f"{node}: {getattr(fn, '__name__', fn)!r} cannot be pickled and so cannot reach the workers: "
                    f"{error}. It holds on to something that lives in this process only (a lock, a file, a connection, "
                    "a session); open that in DoFn.setup"
                ) from None


RULES: tuple[Callable[[Graph], None], ...] = (
    not_empty,
    labels_differ,
    inputs_are_there,
    keyed_inputs_are_pairs,
    column_inputs_have_columns,
    windows_agree,
    groupings_end,
    windows_can_be_assigned,
    side_inputs_have_one_window,
    side_inputs_are_seen,
    timers_have_methods,
    functions_travel,
)


def validate(graph: Graph) -> Graph:
    """The same graph, if it keeps every rule."""
    for rule in RULES:
        rule(graph)
    return graph
