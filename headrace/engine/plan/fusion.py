"""Fuses the nodes of a graph into the stages of a batch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from headrace.engine.plan.stages import (
    DEAD,
    Blocks,
    Columns,
    Form,
    Frame,
    Plan,
    Python,
    Read,
    Relational,
    Shuffle,
    ShuffleRows,
    Stage,
    Text,
    Union,
    Write,
)
from headrace.engine.plan.translation import operator, stateful_fn, step_of
from headrace.engine.stateful.operator import StatefulOperator
from headrace.engine.worker.addedcolumns import added_columns
from headrace.engine.worker.bundles import FromBlocks, ToBlocks, ToColumns
from headrace.engine.worker.columnbundles import ColumnReader
from headrace.engine.worker.grouped import CombinedValues, GroupedValues, needs_times, sort_columns
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.operators import Operator
from headrace.engine.worker.program import Head, Output, Program, Readers
from headrace.engine.worker.shuffle import ORDER, FromRows, ToAccumulators, ToRows, shuffle_schema
from headrace.engine.worker.text import text_of
from headrace.engine.worker.torecords import to_records
from headrace.model.columns import Columnwise
from headrace.model.elementwise import ParDo
from headrace.model.errors import PipelineError
from headrace.model.grouping import in_panes
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Reshuffle, WindowInto
from headrace.model.panes import NO_PANE, ONLY_PANE, PaneInfo
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sharded import Sharded
from headrace.model.sinks import ForEach, Sink, WriteFiles
from headrace.model.sources import Create, Source
from headrace.model.tasks import Tasks
from headrace.model.topics import WriteTopic


def fuse(graph: Graph) -> Plan:
    """Makes every node a stage of its own or, if it runs in Python like what it reads, a step of that stage."""
    return _Fusion(graph).plan


def count_readers(plan: Plan) -> Plan:
    """Counts how often each stage is read: one that is read twice is persisted, not run twice."""
    for stage in plan.stages:
        for frame in (*stage.inputs, *(stage.sides if isinstance(stage, Python) else ())):
            frame.stage.readers += 1
    return plan


@dataclass(frozen=True)
class StagePlace:
    """The place of a collection inside a Python stage: who reads it there."""

    stage: Python
    readers: Readers


@dataclass
class BatchPlace:
    """The place of a collection: inside a Python stage, in a frame, or in both."""

    inside: StagePlace | None = None
    frame: Frame | None = None


class _Fusion:
    """Walks the graph in order, and notes the place of each collection."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plan = Plan([])
        self.places: defaultdict[int, BatchPlace] = defaultdict(BatchPlace)
        for node in graph:
            self._place(node)

    def _place(self, node: Node) -> None:
        transform = node.transform
        if isinstance(transform, Source):
            pc, *dead = node.outputs
            frame = self._add(Read([], node), Columns(pc.schema) if pc.has_columns else Blocks(), pc)
            self.places[id(pc)].frame = frame
            for letters in dead:
                self.places[id(letters)].frame = Frame(frame.stage, Blocks(), letters, DEAD)
        elif isinstance(transform, Flatten):
            self._flatten(node)
        elif isinstance(transform, GroupByKey | CombinePerKey) or (isinstance(transform, ParDo) and transform.stateful):
            self._shuffle(node)
        elif isinstance(transform, Reshuffle) and not self._in_columns(node.inputs[0]):
            self._spread(node)
        elif isinstance(transform, Columnwise) or (
            isinstance(transform, WindowInto | Reshuffle) and self._in_columns(node.inputs[0])
        ):
            pc = node.outputs[0]
            frames = [self._frame(each, Columns(each.schema)) for each in node.inputs]
            self.places[id(pc)].frame = self._add(Relational(frames, node), Columns(pc.schema), pc)
            self._nothing_late(node)
        elif isinstance(transform, Sink) and not isinstance(transform, ForEach):
            self._sink(node)
        elif isinstance(transform, Tasks):
            raise PipelineError(f"{node}: tasks are for streams; say run(stream=True)")
        elif isinstance(transform, Sharded):
            raise PipelineError(
                f"{node}: work of shards is for streams, and this is a batch, or a side input that is computed as "
                "one; say run(stream=True), or make the side input of what is before it"
            )
        else:
            self._step(node)

    # Python stages

    def _step(self, node: Node) -> None:
        """Adds the node's operator to the Python stage that has its input, or to a new one."""
        (pc,) = node.inputs
        sides = self._sides(node)
        place = self.places[id(pc)].inside
        # A stage cannot wait for a side input that is made of its own output.
        if place is None or any(place.stage in frame.stage.ancestors() for frame in sides):
            place = self._stage_over(pc)
        self._step_at(place, node, operator(node), sides)

    def _step_at(self, place: StagePlace, node: Node, op: Operator, sides: list[Frame]) -> None:
        step, stage = step_of(node, op), place.stage
        place.readers.steps.append(step)
        stage.labels.append(node.label)
        stage.sides += sides
        for out in node.outputs:
            self.places[id(out)].inside = StagePlace(stage, step.readers[out.tag])

    def _stage_over(self, pc: PCollection) -> StagePlace:
        """Adds a Python stage that reads the collection from a frame."""
        place = self.places[id(pc)]
        frame = place.frame or self._frame(pc, Columns(pc.schema) if pc.has_columns else Blocks())
        pane = self._pane(pc)
        head = ColumnReader(frame.form.schema, pane=pane) if isinstance(frame.form, Columns) else FromBlocks()
        place.inside = self._python(frame, head)
        return place.inside

    def _python(self, frame: Frame, head: Any) -> StagePlace:
        stage = Python([frame], Program(head))
        self.plan.stages.append(stage)
        return StagePlace(stage, stage.program.readers)

    def _output(self, pc: PCollection, output: Any, form: Form) -> Frame:
        """Adds an output to the Python stage that the collection is in."""
        return self._output_at(self.places[id(pc)].inside or self._stage_over(pc), pc, output, form)

    def _output_at(self, place: StagePlace, pc: PCollection, output: Any, form: Form) -> Frame:
        program = place.stage.program
        number = len(program.outputs)
        program.outputs.append(output)
        place.readers.outputs.append(number)
        return Frame(place.stage, form, pc, number)

    def _sides(self, node: Node) -> list[Frame]:
        """Returns the frames of a node's side inputs."""
        return [self._frame(pc, Blocks()) for pc in node.transform.side_inputs()]

    # Other stages

    def _shuffle(self, node: Node) -> None:
        """Adds a shuffle: pairs become rows, travel to where their key is, and become groups there."""
        (pc,), transform = node.inputs, node.transform
        windowing, windowed, timed = pc.windowing, not pc.windowing.is_global, needs_times(pc.windowing)
        order = sort_columns(windowing)
        head: Head = GroupedValues(node.label, windowing)
        out: Output = ToRows(node.label, shuffle_schema(windowed=windowed, timed=timed, ordered=ORDER in order))
        if isinstance(transform, CombinePerKey):
            fn = transform.fn
            head = CombinedValues(node.label, windowing, fn, lifted=not timed)
            if not timed:  # the combiner starts before the shuffle
                out = ToAccumulators(node.label, fn, shuffle_schema(windowed=windowed, timed=False))
        elif isinstance(transform, ParDo):
            order = [*order, TIME, ORDER]
            head = GroupedValues(node.label, windowing, timed=True, pane=self._pane(pc))
            out = ToRows(node.label, shuffle_schema(windowed=windowed, timed=True, ordered=True))
        rows = self._output(pc, out, ShuffleRows())
        frame = self._add(Shuffle([rows], node.label, order), ShuffleRows(), pc)
        if isinstance(transform, ParDo):
            place = self._python(frame, head)
            self._step_at(place, node, StatefulOperator(node.label, stateful_fn(node, transform)), self._sides(node))
        else:
            place = self.places[id(node.outputs[0])].inside = self._python(frame, head)
            place.stage.labels.append(node.label)
            self._nothing_late(node)

    def _nothing_late(self, node: Node) -> None:
        """Gives late outputs empty frames: a batch waits for all its elements."""
        for pc in node.outputs[1:]:
            nothing = Node(f"{node.label}/late", Create([]), (), (pc,), node.place)
            self.places[id(pc)].frame = self._add(Read([], nothing), Blocks(), pc)

    def _spread(self, node: Node) -> None:
        (pc,), (out,) = node.inputs, node.outputs
        schema = shuffle_schema(keyed=False, windowed=not pc.windowing.is_global, timed=True)
        rows = self._output(pc, ToRows(node.label, schema), ShuffleRows())
        frame = self._add(Shuffle([rows], node.label, []), ShuffleRows(), out)
        self.places[id(out)].inside = self._python(frame, FromRows(self._pane(pc)))

    def _flatten(self, node: Node) -> None:
        (out,) = node.outputs
        # Columns do not tell panes apart, blocks do.
        alike = len({self._pane(pc) for pc in node.inputs}) == 1
        form = Columns(out.schema) if out.has_columns and alike else Blocks()
        frames = [self._frame(pc, form) for pc in node.inputs]
        self.places[id(out)].frame = self._add(Union(frames, node.label), form, out)

    def _sink(self, node: Node) -> None:
        (pc,) = node.inputs
        sink = node.transform
        added = added_columns(self.graph, node) if isinstance(sink, WriteFiles) else None
        if isinstance(sink, WriteFiles) and (text := text_of(node.label, sink, pc, added)) is not None:
            frame, added = self._output(pc, text, Text()), None
        elif added is not None and not self._in_columns(pc):
            frame, added = self._output(pc, ToColumns(node.label, pc.schema, False, added), Columns(pc.schema)), None
        elif isinstance(sink, WriteTopic):
            frame = self._records(pc, to_records(node, pc))
        else:
            frame = self._frame(pc, Columns(pc.schema) if pc.has_columns else Blocks())
        self.plan.stages.append(Write([frame], node, self._pane(pc), added))

    def _records(self, pc: PCollection, output: Output) -> Frame:
        """Makes the records of a topic. What has columns outside of Python becomes records by columns."""
        frame = self.places[id(pc)].frame
        if frame is None or not self._in_columns(pc):
            return self._output(pc, output, Blocks())
        return self._output_at(self._python(frame, ColumnReader(pc.schema)), pc, output, Blocks())

    # Frames

    def _in_columns(self, pc: PCollection) -> bool:
        """Returns whether the collection has columns outside of Python already, so that Catalyst may go on with it."""
        place = self.places[id(pc)]
        return place.inside is None and place.frame is not None and isinstance(place.frame.form, Columns)

    def _frame(self, pc: PCollection, form: Form) -> Frame:
        """Returns the collection as a frame in this form, converted if it is in another."""
        place = self.places[id(pc)]
        frame = place.frame
        if frame is not None and type(frame.form) is type(form):
            return frame
        if isinstance(form, Columns):
            output: Any = ToColumns(pc.label, form.schema, not pc.windowing.is_global)
        else:
            output = ToBlocks()
        converted = self._output(pc, output, form)
        if frame is None:
            place.frame = converted
        return converted

    def _add(self, stage: Stage, form: Form, pc: PCollection) -> Frame:
        self.plan.stages.append(stage)
        return Frame(stage, form, pc)

    def _pane(self, pc: PCollection) -> PaneInfo:
        """Returns the pane of a collection: in a batch the only one of a group, or none if nothing grouped it yet."""
        return ONLY_PANE if in_panes(self.graph, pc) else NO_PANE
