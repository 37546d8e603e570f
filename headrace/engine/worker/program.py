"""Programs of Python stages: what one mapInArrow call runs in a worker.

A head turns Arrow batches into bundles, steps work on them, and outputs turn them into Arrow batches again. Steps that
read the same collection share it. Where a stage has several outputs, each row it gives holds one output's batch.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.worker.bundles import BATCH_SIZE, BLOCK_SCHEMA, Bundle
from headrace.engine.worker.columnbundles import Columnar, ColumnBundle
from headrace.engine.worker.frozenimports import freeze_imports
from headrace.engine.worker.operators import ColumnsOperator, Operator
from headrace.engine.worker.sidevalues import SideResolver
from headrace.engine.worker.usedcolumns import has_plain_attributes
from headrace.model.elementwise import DeadLetter
from headrace.model.metriccells import Cells, recording
from headrace.model.pickling import define_in_script
from headrace.model.schema import Schema


class Counters(Protocol):
    """Takes what workers counted; the driver reads the sums."""

    def add(self, counts: Counter[tuple[str, str]]) -> None: ...

    def add_records(self, counts: Counter[str]) -> None: ...

    def report_bad(self, last: dict[str, DeadLetter]) -> None: ...

    def report_shards(self, reports: dict[str, Any]) -> None: ...

    def report_metrics(self, place: int | str, cells: Cells) -> None: ...


class Head(Protocol):
    """Reads the input of a stage as bundles."""

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle | ColumnBundle]: ...


class Output(Protocol):
    """Writes one of the outputs of a stage."""

    def schema(self) -> pa.Schema: ...

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]: ...

    def finish(self) -> Iterator[pa.RecordBatch]: ...


@dataclass
class Readers:
    """The readers of one collection inside a stage: further steps, and outputs by number."""

    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass
class Step:
    """An operator, and the readers of its outputs by tag."""

    op: Operator
    readers: dict[str | None, Readers]


class Binding:
    """Copies planned steps for one run, with operators bound to its side inputs. What was shared stays shared."""

    def __init__(self, resolve: SideResolver) -> None:
        self._resolve = resolve
        self._copies: dict[int, Readers] = {}

    def readers(self, planned: Readers) -> Readers:
        """Returns the copy of readers."""
        if id(planned) not in self._copies:
            copy = self._copies[id(planned)] = Readers(outputs=list(planned.outputs))
            copy.steps = [self._step(step) for step in planned.steps]
        return self._copies[id(planned)]

    def by_tag(self, planned: dict[str | None, Readers]) -> dict[str | None, Readers]:
        """Returns the copies of readers by tag."""
        return {tag: self.readers(readers) for tag, readers in planned.items()}

    def _step(self, planned: Step) -> Step:
        return Step(planned.op.bind(self._resolve), self.by_tag(planned.readers))


NUMBERED_SCHEMA = pa.schema([("output", pa.int32()), ("batch", pa.binary())])

Numbered = tuple[int, pa.RecordBatch]


@dataclass
class Program:
    """Callable by mapInArrow. A plan has templates of programs; a run calls copies that are bound to it."""

    head: Head
    readers: Readers = field(default_factory=Readers)
    outputs: list[Output] = field(default_factory=list)
    counters: Counters | None = None
    classes: dict[str, type] = field(default_factory=dict)
    number: int = 0  # among the programs of a run

    def bind(
        self,
        resolve: SideResolver,
        outputs: list[Output],
        *,
        counters: Counters | None = None,
        classes: dict[str, type] | None = None,
        number: int = 0,
    ) -> Self:
        """Returns a copy for one run, which knows side inputs, outputs, counters, and classes of the user's script."""
        readers, classes = Binding(resolve).readers(self.readers), classes or {}
        return replace(self, readers=readers, outputs=outputs, counters=counters, classes=classes, number=number)

    def schema(self) -> pa.Schema:
        if not self.outputs:
            return BLOCK_SCHEMA
        return self.outputs[0].schema() if len(self.outputs) == 1 else NUMBERED_SCHEMA

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        define_in_script(self.classes)
        results = self._run(batches)
        if len(self.outputs) <= 1:
            return (batch for _, batch in results)
        return (_numbered(number, batch) for number, batch in results)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Numbered]:
        freeze_imports()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[int, list[ColumnBundle]] = {}  # by the number of the output
        with recording(all_threads=True) as recorder:
            yield from self._work(batches)
        if self.counters is not None:
            self.counters.add(self._counts)
            if recorder.cells:
                self.counters.report_metrics(self.number, recorder.cells)

    def _work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Numbered]:
        steps = steps_of(*self._entries())
        for step in steps:
            step.op.open()
        for bundle, readers in self._entering(batches):
            yield from self._enter(bundle, readers)
        for step in steps:
            for tag, bundle in step.op.close():
                yield from self._pass(bundle, step.readers[tag])
        for number, output in enumerate(self.outputs):
            for batch in itertools.chain(self._add_waiting(number), output.finish()):
                yield number, batch

    def _entries(self) -> Iterable[Readers]:
        """Returns the readers of what enters."""
        return (self.readers,)

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle | ColumnBundle, Readers]]:
        return ((bundle, self.readers) for bundle in self.head.bundles(batches))

    def _enter(self, bundle: Bundle | ColumnBundle, readers: Readers) -> Iterator[Numbered]:
        if isinstance(bundle, Bundle):
            yield from self._pass(bundle, readers)
            return
        columnar = [number for number in readers.outputs if isinstance(self.outputs[number], Columnar)]
        for number in columnar:
            for batch in self.outputs[number].add_columns(bundle):  # type: ignore[attr-defined]
                yield number, batch
        rest = Readers(outputs=[number for number in readers.outputs if number not in columnar])
        for step in readers.steps:
            if isinstance(step.op, ColumnsOperator):
                self._counts[step.op.label, "in"] += bundle.size
                for result in step.op.run_whole(bundle):
                    self._counts[step.op.label, "out"] += result.size
                    yield from self._enter(result, step.readers[None])
            else:
                rest.steps.append(step)
        if rest.steps or rest.outputs:
            for part in bundle.pieces() if bundle.panes is None else bundle.parts():
                yield from self._pass(part, rest)

    def _pass(self, bundle: Bundle | ColumnBundle, readers: Readers) -> Iterator[Numbered]:
        if not bundle.size:
            return
        for number in readers.outputs:
            for batch in self._add(bundle, number):
                yield number, batch
        for step in readers.steps:
            self._counts[step.op.label, "in"] += bundle.size
            results = step.op.run(bundle) if isinstance(bundle, Bundle) else step.op.run_columns(bundle)
            for tag, result in results:
                way = "out" if tag is None or tag != step.op.dead_tag else "dead"
                self._counts[step.op.label, way] += result.size
                yield from self._pass(result, step.readers[tag])

    def _add(self, bundle: Bundle | ColumnBundle, number: int) -> Iterator[pa.RecordBatch]:
        """Adds a bundle to an output; columns, if it takes them, once there are enough for a batch."""
        output = self.outputs[number]
        if isinstance(bundle, Bundle):
            yield from output.add(bundle)
        elif not isinstance(output, Columnar):
            yield from output.add(bundle.whole())
        else:
            waiting = self._waiting.setdefault(number, [])
            waiting.append(bundle)
            if sum(each.size for each in waiting) >= BATCH_SIZE:
                yield from self._add_waiting(number)

    def _add_waiting(self, number: int) -> Iterator[pa.RecordBatch]:
        for bundle in ColumnBundle.joined(self._waiting.pop(number, [])):
            yield from self.outputs[number].add_columns(bundle)  # type: ignore[attr-defined]


def columns_read(
    readers: Readers, schema: Schema | None, of_output: Callable[[int], Iterable[str] | None] = lambda number: None
) -> set[str] | None:
    """Returns the columns that are read of elements with this schema; None if a reader may need whole elements.

    `of_output` gives those that an output reads, by its number.
    """
    sets = [of_output(number) for number in readers.outputs]
    for step in readers.steps:
        used = step.op.used if has_plain_attributes(schema) else None
        sets.append(used if used is None or schema is None or used.issubset(schema.names) else None)
        if step.op.passes_elements:
            sets += [columns_read(further, schema, of_output) for further in step.readers.values()]
    known = [names for names in sets if names is not None]
    return set().union(*known) if len(known) == len(sets) else None


def steps_of(*entries: Readers) -> list[Step]:
    """Returns all steps, each once and before those that read from it."""
    visited: dict[int, Step] = {}

    def visit(readers: Readers) -> None:
        for step in readers.steps:
            visited.pop(id(step), None)  # one that is visited again comes after all that lead to it
            visited[id(step)] = step
            for further in {id(each): each for each in step.readers.values()}.values():
                visit(further)

    for readers in entries:
        visit(readers)
    return list(visited.values())


def _numbered(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    row: list[Any] = [pa.array([number], pa.int32()), pa.array([arrow_bytes(batch)], pa.binary())]
    return pa.record_batch(row, schema=NUMBERED_SCHEMA)


def unnumbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reads the batches of one output out of numbered rows."""
    for batch in batches:
        for cell in batch.column("batch"):
            yield from pa.ipc.open_stream(cell.as_buffer())
