"""The graph and its notation: Pipeline, PCollection, PTransform, and the operators `|` and `>>`.

A Pipeline records nodes and makes an immutable Graph of them. Nothing here knows how a graph is run: `run` and
`explain` pass it to the engine, which is imported only then.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.model.errors import PipelineError
from headrace.model.htmltables import html_text
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.schema import ROWS, Schema, schema_of

if TYPE_CHECKING:
    from headrace.engine.run import Handle

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Place:
    """The file and the line in the user's code where a transform was applied."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @staticmethod
    def of_caller() -> Place:
        """Returns the place of the innermost frame outside this package."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        name = frame.f_code.co_filename
        if os.path.isabs(name) and not os.path.relpath(name).startswith(".."):
            name = os.path.relpath(name)
        return Place(name, frame.f_lineno)


@dataclass(frozen=True, eq=False)
class PCollection:
    """A collection of elements, each with a timestamp and a window; bounded or unbounded.

    Applying a transform makes one; do not call the constructor.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | "numbers" >> hr.Create([1, 2, 3])
    <PCollection of int from 'numbers', bounded>
    """

    pipeline: Pipeline
    label: str
    place: Place
    tag: str | None = None
    element_type: object = None
    windowing: Windowing = GLOBAL
    bounded: bool = True

    def __or__(self, transform: PTransform) -> Any:
        return self.pipeline.apply(transform, self)

    @property
    def schema(self) -> Schema | None:
        """The columns of the elements, if their type declares them; None for other Python objects."""
        return schema_of(self.element_type)

    @property
    def has_columns(self) -> bool:
        """Whether the elements are stored as columns, whose types are declared or known to Spark."""
        return self.element_type is ROWS or self.schema is not None

    def to_spark(self) -> Any:
        """Returns the elements as a Spark DataFrame of their columns, which Spark computes when it needs them.

        The session is that of the pipeline, or the one that is active. The pipeline is not run, and may still change.

        >>> import headrace as hr
        >>> p = hr.Pipeline()
        >>> lengths = p | hr.Create(["to", "be", "that"]) | hr.Map(lambda word: (word, len(word))).with_output_types(
        ...     tuple[str, int]
        ... )
        >>> lengths.to_spark().where("_2 > 2").collect()
        [Row(_1='that', _2=4)]
        """
        from headrace.engine.run import to_spark

        pipeline = self.pipeline
        return to_spark(pipeline.snapshot(), self, spark=pipeline.spark, master=pipeline.master)

    def __repr__(self) -> str:
        declared = ROWS if isinstance(self.element_type, Schema) else self.element_type
        kind = getattr(declared, "__name__", None) if isinstance(declared, type) else declared
        name = self.label if self.tag is None else f"{self.label}.{self.tag}"
        return f"<PCollection of {kind or 'objects'} from {name!r}, {'bounded' if self.bounded else 'unbounded'}>"


class PTransform:
    """A step of a pipeline. To compose one from others, subclass it and override `expand`.

    >>> import headrace as hr
    >>> class Shout(hr.PTransform):
    ...     def expand(self, lines):
    ...         return lines | hr.Map(str.upper) | hr.Map(lambda line: line + "!")
    >>> with hr.Pipeline() as p:
    ...     loud = p | hr.Create(["hi"]) | Shout() | hr.Collect()
    >>> list(loud)
    ['HI!']
    """

    label: str | None = None

    def expand(self, inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must override expand(inputs)")

    def default_label(self) -> str:
        return type(self).__name__

    def __rrshift__(self, label: str) -> Self:
        if not isinstance(label, str) or not label:
            raise PipelineError(
                f"a label is a non-empty string, got {label!r}; write 'my label' >> {type(self).__name__}(...)"
            )
        labelled = copy.copy(self)
        labelled.label = label
        return labelled

    def __ror__(self, inputs: Any) -> Any:
        return pipeline_of(inputs, self).apply(self, inputs)


class Primitive(PTransform):
    """A transform that the engine itself runs. It declares its outputs and is not expanded into others."""

    output_type: object = None
    outputs: tuple[str | None, ...] = (None,)

    def with_output_types(self, element_type: object) -> Self:
        """Returns this transform, with the type of its output elements declared, e.g. `tuple[str, int]`."""
        typed = copy.copy(self)
        typed.output_type = element_type
        return typed

    def expand(self, inputs: Any) -> Any:
        return pipeline_of(inputs, self).add(self, inputs)

    def side_inputs(self) -> tuple[PCollection, ...]:
        return ()

    def with_side_inputs(self, replacements: Mapping[PCollection, PCollection]) -> Self:
        """Returns the transform with other collections in place of its side inputs."""
        return self

    def functions(self) -> tuple[object, ...]:
        """Returns the user's functions and objects that are sent to the workers, and so must be picklable."""
        return ()

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return self.output_type

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return inputs[0].windowing if inputs else GLOBAL

    def windowing_of(self, tag: str | None, inputs: tuple[PCollection, ...]) -> Windowing:
        """Returns the windowing of the output with this tag."""
        return self.windowing_from(inputs)

    def bounded_from(self, inputs: tuple[PCollection, ...]) -> bool:
        return all(pc.bounded for pc in inputs)


@dataclass(frozen=True, eq=False)
class Node:
    """One applied primitive: its label, its inputs and outputs, and its place in the user's code."""

    label: str
    transform: Primitive
    inputs: tuple[PCollection, ...]
    outputs: tuple[PCollection, ...]
    place: Place
    named: bool = False

    def __str__(self) -> str:
        return f"{self.label!r} ({self.place})"


@dataclass(frozen=True)
class Graph:
    """The nodes of a pipeline in the order in which they were applied: a node's inputs come before it."""

    nodes: tuple[Node, ...]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def producer(self, pc: PCollection) -> Node:
        return next(node for node in self.nodes if pc in node.outputs)

    @property
    def bounded(self) -> bool:
        return all(pc.bounded for node in self.nodes for pc in node.outputs)

    def leading_to(self, pc: PCollection) -> Graph:
        """Returns the part of the graph that a collection depends on."""
        needed: set[int] = set()
        wanted = [pc]
        while wanted:
            node = self.producer(wanted.pop())
            if id(node) not in needed:
                needed.add(id(node))
                wanted += [*node.inputs, *node.transform.side_inputs()]
        return Graph(tuple(node for node in self.nodes if id(node) in needed))

    def with_transforms(self, transforms: Mapping[Node, Primitive]) -> Graph:
        """Returns the graph with other transforms in some nodes; element types that depend on them are derived again.

        >>> import headrace as hr
        >>> p = hr.Pipeline()
        >>> _ = p | hr.Create([1, 2]) | hr.Filter(bool)
        >>> graph = p.graph()
        >>> [node.outputs[0] for node in graph.with_transforms({graph.nodes[0]: hr.Create(["a"])})]
        [<PCollection of str from 'Create', bounded>, <PCollection of str from 'Filter(bool)', bounded>]
        """
        replaced: dict[PCollection, PCollection] = {}
        nodes = []
        for node in self.nodes:
            inputs = tuple(replaced.get(pc, pc) for pc in node.inputs)
            transform = transforms.get(node, node.transform).with_side_inputs(replaced)
            outputs = node.outputs
            if outputs:
                element_type = transform.output_type or transform.element_type_from(inputs)
                if element_type != outputs[0].element_type:
                    outputs = (dataclasses.replace(outputs[0], element_type=element_type), *outputs[1:])
                    replaced[node.outputs[0]] = outputs[0]
            nodes.append(dataclasses.replace(node, transform=transform, inputs=inputs, outputs=outputs))
        return Graph(tuple(nodes))


class Pipeline:
    """A pipeline to which transforms are applied with `|`. Leaving its `with` block runs it and waits for the end.

    After the block, `result` is the handle of that run, with its `status()` and `metrics()`.

    `spark` is an existing session to use, as in a notebook; otherwise one is started on `master`, on `SPARK_MASTER`,
    or on all cores of this machine.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     total = p | hr.Create([1, 2, 3]) | hr.CombineGlobally(sum) | hr.Collect()
    >>> list(total), p.result.status().state
    ([6], 'done')
    """

    def __init__(self, *, spark: Any = None, master: str | None = None) -> None:
        self.spark = spark
        self.master = master
        self.result: Handle | None = None
        self._nodes: list[Node] = []
        self._labels: set[str] = set()
        self._scopes = [""]
        self._graph: Graph | None = None

    def __or__(self, transform: PTransform) -> Any:
        return self.apply(transform, self)

    def apply(self, transform: PTransform, inputs: Any) -> Any:
        """Applies `transform`; the labels of all in its expansion get the transform's label as a prefix."""
        if not isinstance(transform, PTransform):
            raise PipelineError(
                f"{transform!r} at {Place.of_caller()} is not a transform: on the right of | comes a PTransform, "
                f"e.g. hr.Map({getattr(transform, '__name__', 'f')})"
            )
        if isinstance(transform, Primitive):
            return transform.expand(inputs)
        self._scopes.append(self._label_for(transform))
        try:
            return transform.expand(inputs)
        finally:
            self._scopes.pop()

    def add(self, transform: Primitive, inputs: Any) -> Any:
        """Records one primitive and returns its outputs: one PCollection, or several by tag."""
        place = Place.of_caller()
        if self._graph is not None:
            raise PipelineError(
                f"{transform.label or transform.default_label()!r} ({place}): the pipeline was run or explained "
                "already and can no longer change; build a new Pipeline"
            )
        read = _collections(inputs, transform, place)
        label = self._label_for(transform)
        output = PCollection(
            pipeline=self,
            label=label,
            place=place,
            element_type=transform.output_type or transform.element_type_from(read),
            windowing=transform.windowing_from(read),
            bounded=transform.bounded_from(read),
        )
        main, *tags = transform.outputs or (None,)
        outputs = (
            dataclasses.replace(output, tag=main, windowing=transform.windowing_of(main, read)),
            *(
                dataclasses.replace(output, tag=tag, element_type=None, windowing=transform.windowing_of(tag, read))
                for tag in tags
            ),
        )
        self._nodes.append(
            Node(
                label,
                transform,
                read,
                outputs if transform.outputs else (),
                place,
                transform.label is not None,
            )
        )
        return outputs[0] if len(outputs) == 1 else TaggedCollections({pc.tag: pc for pc in outputs})

    def node_of(self, pc: PCollection) -> Node:
        """Returns the node that a collection is an output of."""
        return next(node for node in self._nodes if pc in node.outputs)

    def replace(self, node: Node, transform: Primitive) -> None:
        """Replaces the transform of a node by another one with the same outputs."""
        self._nodes[self._nodes.index(node)] = dataclasses.replace(node, transform=transform)

    def graph(self) -> Graph:
        """Returns the immutable graph; after that the pipeline accepts no more transforms."""
        self._graph = self.snapshot()
        return self._graph

    def snapshot(self) -> Graph:
        """Returns the graph as it is now; the pipeline may still change."""
        return self._graph or Graph(tuple(self._nodes))

    def run(
        self,
        *,
        stream: bool = False,
        checkpoint: str | None = None,
        savepoint: str | None = None,
        forget: Sequence[str] | None = None,
        levels: int | None = None,
        shards: int | None = None,
        partitions: int | None = None,
        trigger: Any = None,
        batch_time: Any = None,
        max_files_per_batch: int | None = None,
        max_records_per_batch: int | None = None,
    ) -> Handle:
        """Starts the pipeline and returns a handle: `wait()`, `stop()`, `status()`, `metrics()`, `savepoint(path)`.

        A pipeline with an unbounded source runs as a stream, and `stream=True` streams a bounded one. The other options
        are for streams:

        - checkpoint: a directory for the stream's state and progress. Run the pipeline again with the same one, and it
          continues after a crash or a stop
        - savepoint: a savepoint to start a new checkpoint from; a checkpoint that exists already continues
        - forget: labels of groupings that the checkpoint has and the pipeline has no more; their state is removed
        - levels: how many levels of groupings, one behind the other, a new checkpoint has at least; groupings that are
          added later find room there, and each level costs time in every micro-batch
        - shards, partitions: into how many shards keys are divided, and how many of Spark's partitions process them, as
          many as there are cores if not given. A checkpoint keeps both; one that begins from a savepoint may have
          others
        - trigger: the time between micro-batches, e.g. "10 seconds". With it, files are read as they arrive, until
          `stop()`; without it, the files that exist are read to the end, one micro-batch after the other
        - batch_time: how long a micro-batch should take; the amount that it reads from each source adapts to that
        - max_files_per_batch, max_records_per_batch: the most files, or records of a topic, that it reads per source

        >>> import headrace as hr
        >>> p = hr.Pipeline()
        >>> total = p | hr.Create([1, 2, 3]) | hr.CombineGlobally(sum) | hr.Collect()
        >>> p.run().wait().state, list(total)
        ('done', [6])
        """
        from headrace.engine.run import run  # the one way from the model to Spark

        return run(
            self.graph(),
            spark=self.spark,
            master=self.master,
            stream=stream,
            checkpoint=checkpoint,
            savepoint=savepoint,
            forget=forget,
            levels=levels,
            shards=shards,
            partitions=partitions,
            trigger=trigger,
            batch_time=batch_time,
            max_files_per_batch=max_files_per_batch,
            max_records_per_batch=max_records_per_batch,
        )

    def explain(self, *, stream: bool = False) -> str:
        """Describes the stages in which this pipeline runs: as a tree for a batch, from sources to sinks for a stream.

        >>> import headrace as hr
        >>> p = hr.Pipeline()
        >>> _ = p | "numbers" >> hr.Create([1, 2]) | "double" >> hr.Map(lambda x: 2 * x) | "show" >> hr.ForEach(print)
        >>> print(p.explain())
        python  double · show
        └─ read  numbers: Create(2 elements)
        """
        from headrace.engine.explain import explain

        return explain(self.graph(), stream=stream)

    def __repr__(self) -> str:
        count = len(self._nodes)
        head = f"<Pipeline of {count} {'transform' if count == 1 else 'transforms'}>"
        return f"{head}\n{self._explained()}" if count else head

    def _repr_html_(self) -> str:
        """Returns a drawing of the graph and its stages, as a notebook shows them."""
        from headrace.engine.explain import draw

        return (draw(self.snapshot()) if self._nodes else "") + html_text(repr(self))

    def _explained(self) -> str:
        """Describes the stages of the pipeline as it is now, or says why it cannot run."""
        from headrace.engine.explain import explain

        try:
            return explain(self.snapshot())
        except Exception as error:  # one may look at a pipeline that is not complete
            return f"it cannot run as it is: {error}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.result = self.run()
            self.result.wait()

    def _label_for(self, transform: PTransform) -> str:
        scope = self._scopes[-1]
        label = preferred = f"{scope}/{transform.label or transform.default_label()}".lstrip("/")
        number = 1
        while transform.label is None and label in self._labels:
            number += 1
            label = f"{preferred} {number}"
        self._labels.add(label)
        return label


class TaggedCollections(Mapping[str | None, PCollection]):
    """The outputs of one transform by tag, as attributes or as items: `parts.good`, `parts["good"]`.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> parsed = p | hr.Create(["1", "x"]) | hr.Map(int).with_exception_handling()
    >>> parsed.main is parsed["main"], list(parsed)
    (True, ['main', 'dead_letters'])
    """

    def __init__(self, outputs: Mapping[str | None, PCollection]) -> None:
        self._outputs = outputs

    def __getitem__(self, tag: str | None) -> PCollection:
        try:
            return self._outputs[tag]
        except KeyError:
            tags = ", ".join(repr(tag) for tag in self._outputs)
            raise KeyError(f"no output tagged {tag!r}; there are {tags}") from None

    def __getattr__(self, tag: str) -> PCollection:
        if tag.startswith("_"):
            raise AttributeError(tag)
        return self[tag]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)


def pipeline_of(inputs: Any, transform: PTransform) -> Pipeline:
    """Returns the pipeline of the inputs on the left of `|`."""
    if isinstance(inputs, Pipeline):
        return inputs
    collections = _collections(inputs, transform, Place.of_caller())
    if not collections:
        raise PipelineError(
            f"{transform.label or transform.default_label()!r} ({Place.of_caller()}): there is no input on the left of "
            "|; apply it to a Pipeline or to PCollections"
        )
    return collections[0].pipeline


def _collections(inputs: Any, transform: PTransform, place: Place) -> tuple[PCollection, ...]:
    """Returns the collections on the left of `|`: one, several in a tuple, list or dict, or none (a pipeline)."""
    if isinstance(inputs, Pipeline):
        return ()
    if isinstance(inputs, PCollection):
        return (inputs,)
    many = (
        tuple(inputs.values())
        if isinstance(inputs, Mapping)
        else tuple(inputs)
        if isinstance(inputs, list | tuple)
        else None
    )
    name = transform.label or transform.default_label()
    if many is None or not all(isinstance(pc, PCollection) for pc in many):
        raise PipelineError(
            f"{name!r} ({place}): on the left of | is {inputs!r}, which is not a collection; apply transforms to a "
            "Pipeline, a PCollection, or a tuple, list or dict of PCollections"
        )
    if len({id(pc.pipeline) for pc in many}) > 1:
        raise PipelineError(f"{name!r} ({place}): its inputs belong to different pipelines; build them on one Pipeline")
    return many
