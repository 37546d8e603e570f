"""Sinks: files that are written atomically, functions over elements, batches or Arrow, and lists in the driver."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headrace.model.collected import Collected
from headrace.model.csvformat import CsvFormat
from headrace.model.errors import PipelineError
from headrace.model.grouping import in_panes, may_retract
from headrace.model.panes import OP, PANE, TIMING, WINDOW_BOUNDS, PaneInfo
from headrace.model.pipeline import PCollection, Primitive
from headrace.model.windows import CountWindows, Window

if TYPE_CHECKING:
    import pyarrow as pa


class Sink(Primitive):
    """A primitive without outputs: the end of a branch of the pipeline."""

    outputs = ()

    def expand(self, inputs: Any) -> Any:
        super().expand(inputs)
        return None


class BatchSink(Sink):
    """A sink that gets its elements in the driver, one micro-batch at a time; a batch run is one micro-batch."""


class WriteFiles(Sink):
    """Writes a directory of files, which appears complete or not at all.

    `existing` says what happens if the directory exists already: "refuse" fails before anything runs, "replace" puts
    the new output in its place once it is complete.

    In a stream, each micro-batch that has elements writes a directory of its own in it, such as `batch-000042`. Each of
    these appears complete or not at all, and once, even after a crash; read them with a glob, e.g. ReadText("out/*").
    "replace" then clears the directory when the stream first starts; a stream that continues from its checkpoint
    continues to write there.

    Elements whose windows are not global have their window beside their own columns: `window_start` and `window_end`
    and, if they were grouped, `pane` and `timing`, the index of the pane and whether it is "early", "on_time" or
    "late". Columns of their own of these names stay as they are. `window=False` leaves all of this out; `window=True`
    writes the pane of elements in the global window, too. If the pipeline has retractions (accumulation="retracting"),
    the column `op` is "retract" in them and "insert" in other elements.
    """

    format: str
    typed = True  # whether the format has timestamps; otherwise they are ISO 8601 text

    def __init__(
        self, path: str, *, existing: Literal["refuse", "replace"] = "refuse", window: bool | None = None
    ) -> None:
        if not isinstance(path, str) or not path:
            raise PipelineError(f"{type(self).__name__} takes the path of a directory, got {path!r}")
        if existing not in ("refuse", "replace"):
            raise PipelineError(f"{type(self).__name__}: existing must be 'refuse' or 'replace', got {existing!r}")
        if window not in (None, True, False):
            raise PipelineError(f"{type(self).__name__}: window must be True or False, got {window!r}")
        self.path, self.existing, self.window = path, existing, window

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class WriteText(WriteFiles):
    """Writes each element as a line of text, `str(element)`.

    If it has a window, that comes first: window_start, window_end, pane, timing and op, as far as there are any, each
    followed by a tab. The line `2026-01-01T00:00:00Z  2026-01-01T00:01:00Z  0  on_time  ('amy', 2)` is an example.

    >>> import headrace as hr, pathlib, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create(["a"]) | hr.WriteText(out)
    >>> [part.read_text() for part in pathlib.Path(out).glob("part-*")]
    ['a\\n']
    """

    format = "text"
    typed = False


class WriteJson(WriteFiles):
    """Writes each element as a line of JSON: elements with columns as objects, and dicts or other JSON values.

    If a value that is not an object has a window, the line is an object, in which the value is called "value".

    >>> import headrace as hr, pathlib, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([{"a": 1}]) | hr.WriteJson(out)
    >>> [part.read_text() for part in pathlib.Path(out).glob("part-*")]
    ['{"a": 1}\\n']
    """

    format = "json"
    typed = False


class WriteCsv(WriteFiles):
    """Writes rows as CSV files, as RFC 4180 describes them or in the format of the options; elements must have columns.

    The options are those of `ReadCsv`, which reads the same rows back. Each file has a `header`, unless it is False. A
    null is written as `null`, by default as nothing, and the empty text as `""`. Texts with separators, quotes or line
    breaks are in quotes; to read line breaks, pass `multi_line=True` to `ReadCsv`. What could not be read back is
    refused: a text that is written like a null, or columns of arrays, maps, structs or bytes.

    >>> import headrace as hr, pathlib, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([('Amy "Z", Ltd', 1)]) | hr.Select(user="_1", n="_2") | hr.WriteCsv(out)
    >>> print(*[part.read_text() for part in pathlib.Path(out).glob("part-*")])
    user,n
    "Amy ""Z"", Ltd",1
    <BLANKLINE>
    """

    format = "csv"
    typed = False

    def __init__(
        self,
        path: str,
        *,
        separator: str = ",",
        quote: str = '"',
        escape: str | None = None,
        header: bool = True,
        null: str = "",
        encoding: str = "utf-8",
        existing: Literal["refuse", "replace"] = "refuse",
        window: bool | None = None,
    ) -> None:
        super().__init__(path, existing=existing, window=window)
        if quote is None:
            raise PipelineError("WriteCsv: quote is one character; without quotes, not every text could be read back")
        self.csv = CsvFormat("WriteCsv", separator, quote, escape, header, null, encoding, multi_line=True)


class WriteParquet(WriteFiles):
    """Writes rows as Parquet files; the collection must have columns.

    >>> import headrace as hr, pyarrow.parquet, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([("a", 1)]) | hr.WriteParquet(out)
    >>> pyarrow.parquet.read_table(out).to_pylist()
    [{'_1': 'a', '_2': 1}]
    """

    format = "parquet"


class WriteAvro(WriteFiles):
    """Writes rows as Avro files, compressed by deflate; the collection must have columns. Every field may be null.

    Workers encode the files, and the driver writes them.

    >>> import fastavro, headrace as hr, tempfile
    >>> out = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([("a", 1)]) | hr.WriteAvro(out)
    >>> with open(f"{out}/part-00000.avro", "rb") as file:
    ...     list(fastavro.reader(file))
    [{'_1': 'a', '_2': 1}]
    """

    format = "avro"


class ForEach(Sink):
    """Calls a function for each element, in the workers.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create(["a", "b"]) | hr.ForEach(lambda name: pathlib.Path(folder, name).touch())
    >>> sorted(file.name for file in pathlib.Path(folder).iterdir())
    ['a', 'b']
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        if not callable(fn):
            raise PipelineError(f"ForEach takes a function, got {fn!r}")
        self.fn = fn

    def __str__(self) -> str:
        return f"ForEach({getattr(self.fn, '__name__', self.fn)})"

    def functions(self) -> tuple[object, ...]:
        return (self.fn,)


class WindowedValue(NamedTuple):
    """An element with its timestamp in microseconds, its window and its pane, as `ForEachBatch` gets it.

    A retraction takes back an element of an earlier pane; there are some with accumulation="retracting" only.

    >>> import headrace as hr
    >>> def show(elements: list[hr.WindowedValue], batch: int) -> None:
    ...     for element in elements:
    ...         print(element.value, hr.Instant(element.timestamp), element.window)
    >>> with hr.Pipeline() as p:
    ...     windowed = p | hr.Create([1]) | hr.WithTimestamps(lambda x: 90) | hr.WindowInto(hr.FixedWindows(60))
    ...     windowed | hr.ForEachBatch(show)
    1 1970-01-01T00:01:30Z [1970-01-01T00:01:00Z, 1970-01-01T00:02:00Z)
    """

    value: Any
    timestamp: int
    window: Window
    pane: PaneInfo
    retraction: bool = False


class ForEachBatch(BatchSink):
    """Calls `fn(elements, batch_id)` in the driver for each micro-batch of a stream that has elements.

    Elements are WindowedValues. After a crash the last batch may come again, with the same id and the same elements: a
    function that stores the last id together with its output can skip it, and so writes every batch once. A pipeline
    that runs as a batch has one batch, with the id 0.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([1, 2]) | hr.ForEachBatch(lambda elements, batch: print(batch, len(elements)))
    0 2
    """

    def __init__(self, fn: Callable[[list[WindowedValue], int], Any]) -> None:
        if not callable(fn):
            raise PipelineError(f"ForEachBatch takes a function of elements and batch id, got {fn!r}")
        self.fn = fn

    def __str__(self) -> str:
        return f"ForEachBatch({getattr(self.fn, '__name__', self.fn)})"


class ForEachArrow(Sink):
    """Calls `fn(batch)` in the driver for each Arrow batch of the elements' columns, times and windows, in a batch run.

    The batches come when all elements are computed, sorted by the columns `order` and divided into `parts` parts; the
    driver has at most two parts in memory at a time.

    >>> import headrace as hr
    >>> from headrace.model.sinks import ForEachArrow
    >>> names = []
    >>> with hr.Pipeline() as p:
    ...     pairs = p | hr.Create([("b", 1), ("a", 2)])
    ...     pairs | ForEachArrow(lambda batch: names.extend(batch.column("_1").to_pylist()), order=["_1"])
    >>> names
    ['a', 'b']
    """

    def __init__(self, fn: Callable[[pa.RecordBatch], Any], *, order: Sequence[str], parts: int = 1) -> None:
        self.fn, self.order, self.parts = fn, tuple(order), parts

    def __str__(self) -> str:
        return f"ForEachArrow({getattr(self.fn, '__name__', self.fn)})"


class Collect(BatchSink):
    """Gathers the elements in the driver's memory, for tests and notebooks: returns a sequence that the run fills.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     squares = p | hr.Create([1, 2]) | hr.Map(lambda x: x * x) | hr.Collect()
    >>> sorted(squares)
    [1, 4]
    """

    def __init__(self) -> None:
        self.collected = Collected("Collect")

    def expand(self, inputs: PCollection) -> Collected:
        applied = copy.copy(self)  # each application gathers for itself
        applied.collected = Collected(self.label or f"Collect of {inputs.label!r}")
        super(Collect, applied).expand(inputs)
        graph, windowing = inputs.pipeline.snapshot(), inputs.windowing
        applied.collected.added = (
            *(() if windowing.is_global else WINDOW_BOUNDS),
            *((PANE, TIMING) if in_panes(graph, inputs) else ()),
            *((OP,) if may_retract(graph, inputs) else ()),
        )
        applied.collected.counted = isinstance(windowing.window, CountWindows)
        return applied.collected
