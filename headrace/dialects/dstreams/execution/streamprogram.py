"""A complete program: inputs, nodes and outputs; what a checkpoint has of it, and the directory of its run."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import cloudpickle
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.graph.inputs import Input
from headrace.dialects.dstreams.graph.nodes import InputNode, Node, StateNode, WindowStateNode
from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import make_folder
from headrace.model.errors import other_format

FORMAT: Final = 1
_LATEST, _PROGRAM = "dstreams.json", "program.pickle"


@dataclass(frozen=True)
class Output:
    """An output operation: a function of a batch's time and RDD."""

    node: Node
    function: Callable[[datetime, RDD[Any]], object]
    name: str


@dataclass
class Program:
    """The program of a StreamingContext, in intervals of `interval` milliseconds."""

    interval: int
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    remember: int = 0
    zero: int | None = None
    """The time before the first batch, once it has been started."""

    def nodes(self) -> list[Node]:
        """Returns the nodes that lead to outputs, parents first."""
        found: dict[int, Node] = {}

        def visit(node: Node) -> None:
            for parent in node.parents:
                if id(parent) not in found:
                    visit(parent)
            found.setdefault(id(node), node)

        for output in self.outputs:
            visit(output.node)
        return list(found.values())

    def complete(self) -> None:
        """Numbers the nodes and computes for how long each has to remember its RDDs."""
        nodes = self.nodes()
        for number, node in enumerate(nodes):
            node.number, node.horizon = number, max(node.slide, self.remember)
        for node in reversed(nodes):
            for parent in node.parents:
                parent.horizon = max(parent.horizon, node.horizon_of_parents())

    def check(self, *, has_checkpoint: bool) -> None:
        """Refuses a program that cannot run."""
        if not self.outputs:
            raise StreamingContextError(
                "StreamingContext.start: no output operations are registered, so there is nothing to execute; add one, "
                "such as pprint() or foreachRDD(...)"
            )
        for node in self.nodes():
            if isinstance(node, StateNode) and not has_checkpoint and not _does_without(node):
                raise StreamingContextError(
                    "StreamingContext.start: updateStateByKey, mapWithState and windows with an inverse function have "
                    "a state, for which no directory has been set; set it with StreamingContext.checkpoint(directory)"
                )

    def horizon(self) -> int:
        """Returns for how long the elements of inputs are needed after their batch."""
        return max((node.horizon for node in self.nodes() if isinstance(node, InputNode)), default=0)


def _does_without(node: StateNode) -> bool:
    """Returns whether Spark has no state here either, and asks for no directory."""
    return isinstance(node, WindowStateNode) and node.operator.inverse is None


class ProgramFolder:
    """A directory with the runs of programs, of which the latest can be continued."""

    def __init__(self, directory: str) -> None:
        parts = urlsplit(directory)
        if parts.scheme not in ("", "file"):
            raise StreamingContextError(
                f"StreamingContext.checkpoint: state and log are files that the driver and all workers open, which "
                f"{directory!r} cannot be; name a directory on a local or mounted disk"
            )
        self.path = Path(parts.path if parts.scheme else directory).absolute()

    def latest(self) -> Path | None:
        """Returns the directory of the program that was started last; None if there is none."""
        try:
            stored = json.loads(read_private(self.path / _LATEST))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stored["format"] != FORMAT:
            what = f"the checkpoint {self.path}"
            raise StreamingContextError(other_format(what, stored["format"], FORMAT, "begin with a new directory"))
        return self.path / str(stored["run"])

    def begin(self) -> Path:
        """Makes the directory of a new program. What is there of earlier ones stays."""
        make_folder(self.path)
        for number in itertools.count(1):
            folder = self.path / f"run-{number}"
            try:
                make_folder(folder, exist_ok=False)
                return folder
            except FileExistsError:
                continue
        raise AssertionError

    def store(self, folder: Path, program: Program) -> None:
        """Stores a program in its directory; from here on it is the latest."""
        before = self.latest()
        replace_file(folder / _PROGRAM, dump_program(program))
        self._point_to(folder.name, None if before is None else before.name)

    def withdraw(self, folder: Path) -> None:
        """Makes the program before this one the latest again: this one could not be started."""
        stored = json.loads(read_private(self.path / _LATEST))
        if stored["run"] != folder.name:
            return
        if (before := stored["before"]) is None:
            (self.path / _LATEST).unlink()
        else:
            self._point_to(str(before), None)

    def _point_to(self, run: str, before: str | None) -> None:
        stored = {"format": FORMAT, "run": run, "before": before}
        replace_file(self.path / _LATEST, json.dumps(stored).encode())


def temporary_folder() -> Path:
    """Makes a directory for a program that nobody will continue."""
    return Path(tempfile.mkdtemp(prefix="headrace-dstreams-"))


def load_program(folder: Path, context: SparkContext) -> Program:
    """Loads a program from its directory."""
    return _Loader(io.BytesIO(read_private(folder / _PROGRAM)), context).load()  # type: ignore[no-any-return]


def dump_program(program: Program) -> bytes:
    """Pickles a program, with the functions in it."""
    file = io.BytesIO()
    try:
        _Dumper(file).dump(program)
    except Exception as error:
        raise StreamingContextError(
            f"StreamingContext.start: with a checkpoint directory the program is stored, and a function of it cannot "
            f"be pickled: {error}; let it make RDDs and broadcast variables when it is called, e.g. from rdd.context"
        ) from error
    return file.getvalue()


class _Dumper(cloudpickle.Pickler):  # type: ignore[misc]
    """Functions may mention the Spark context, which is that of the process in which they are loaded."""

    def persistent_id(self, obj: object) -> str | None:
        if isinstance(obj, SparkContext):
            return "context"
        return "session" if isinstance(obj, SparkSession) else None


class _Loader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, context: SparkContext) -> None:
        super().__init__(file)
        self._context = context

    def persistent_load(self, pid: str) -> object:
        return self._context if pid == "context" else SparkSession(self._context)
