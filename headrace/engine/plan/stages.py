"""Stages of a batch: what Spark does in one go. A plan is a tree of them from each sink back to its sources.

A stage gives frames; a frame is one output of a stage in one form: columns, packed blocks, or rows for a shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.engine.worker.addedcolumns import AddedColumns
from headrace.engine.worker.program import Program
from headrace.model.panes import PaneInfo
from headrace.model.pipeline import Node, PCollection, Primitive
from headrace.model.schema import Schema


@dataclass(frozen=True)
class Columns:
    """Elements as columns; without a schema, Rows whose columns Spark knows."""

    schema: Schema | None


@dataclass(frozen=True)
class Blocks:
    """Elements as packed blocks."""


@dataclass(frozen=True)
class ShuffleRows:
    """One row per pair or accumulator, for a shuffle."""


@dataclass(frozen=True)
class Text:
    """One line of text per element."""


DEAD = 1
"""The number of a source's dead letters among its outputs."""

Form = Columns | Blocks | ShuffleRows | Text


@dataclass(eq=False)
class Stage:
    """A part of a plan that Spark does in one go."""

    inputs: list[Frame]
    readers: int = field(default=0, init=False)  # how many stages read from it, filled in by the last pass

    def describe(self) -> str:
        raise NotImplementedError

    def ancestors(self) -> Iterator[Stage]:
        """Gives the stage itself and all it depends on."""
        yield self
        for frame in self.inputs:
            yield from frame.stage.ancestors()


@dataclass(eq=False)
class Frame:
    """Output `number` of a stage, in a form. `pc` is the collection in it."""

    stage: Stage
    form: Form
    pc: PCollection
    number: int = 0


@dataclass(eq=False)
class Read(Stage):
    """Opens a source."""

    node: Node

    def describe(self) -> str:
        return f"read  {named(self.node)}"


@dataclass(eq=False)
class Relational(Stage):
    """Transforms columns in Catalyst."""

    node: Node

    def describe(self) -> str:
        return f"columns  {self.node.label}"


@dataclass(eq=False)
class Python(Stage):
    """Runs user functions, fused: one pass over the data in Python workers. `sides` are its side inputs."""

    program: Program
    labels: list[str] = field(default_factory=list)
    sides: list[Frame] = field(default_factory=list)

    def describe(self) -> str:
        return f"python  {' · '.join(self.labels) or 'pack'}"

    def ancestors(self) -> Iterator[Stage]:
        yield from super().ancestors()
        for frame in self.sides:
            yield from frame.stage.ancestors()


@dataclass(eq=False)
class Shuffle(Stage):
    """Brings rows of one key to one place, in order; without keys, spreads them evenly."""

    label: str
    order: list[str]

    def describe(self) -> str:
        return (
            f"shuffle  {self.label} by {', '.join(name.lstrip('_') for name in self.order)}"
            if self.order
            else f"shuffle  {self.label}"
        )


@dataclass(eq=False)
class Union(Stage):
    """Makes one frame of several."""

    label: str

    def describe(self) -> str:
        return f"flatten  {self.label}"


@dataclass(eq=False)
class Write(Stage):
    """Writes to a sink. `added` are columns that Spark adds to those of the frame."""

    node: Node
    pane: PaneInfo
    added: AddedColumns | None = None

    def describe(self) -> str:
        return f"write  {named(self.node)}"


@dataclass(eq=False)
class Plan:
    """The stages of a pipeline."""

    stages: list[Stage]

    def ends(self) -> list[Stage]:
        """Returns the stages that must be run: sinks, and stages that nobody reads."""
        return [stage for stage in self.stages if isinstance(stage, Write) or not stage.readers]

    def tree(self) -> str:
        """Renders the plan as text: each sink, and under it what it reads."""
        shown: set[int] = set()
        lines: list[str] = []
        for stage in self.ends():
            lines += _lines(stage, shown, "", "")
        return "\n".join(lines)


def _lines(stage: Stage, shown: set[int], first: str, rest: str) -> Iterator[str]:
    if id(stage) in shown:
        yield f"{first}{stage.describe()}  (as above)"
        return
    if stage.readers > 1:
        shown.add(id(stage))
    yield f"{first}{stage.describe()}"
    below = [(frame, "") for frame in stage.inputs]
    if isinstance(stage, Python):
        below += [(frame, "side input: ") for frame in stage.sides]
    for number, (frame, role) in enumerate(below, 1):
        end = number == len(below)
        yield from _lines(
            frame.stage, shown, f"{rest}{'└─ ' if end else '├─ '}{role}", f"{rest}{'   ' if end else '│  '}"
        )


def named(node: Node) -> str:
    """Describes a node: its label, if the user chose one, and what it does."""
    what = shown(node.transform)
    return f"{node.label}: {what}" if node.named else what


def shown(transform: Primitive) -> str:
    """Describes what a transform does."""
    return str(transform) if type(transform).__str__ is not object.__str__ else type(transform).__name__
