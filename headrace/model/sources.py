"""Where elements come from: Create and the readers. What is meant only; the engine opens the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.model.badrecords import Bad, RecordSource
from headrace.model.dofn import TimestampedValue
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Pipeline, Primitive
from headrace.model.schema import ROWS, common_type, schema_of
from headrace.model.watermarks import Monotonic, WatermarkPolicy, checked_policy


class Source(Primitive):
    """A primitive that is applied to the pipeline itself."""

    bounded: bool = True
    watermark: WatermarkPolicy = Monotonic()

    def expand(self, inputs: Any) -> Any:
        if not isinstance(inputs, Pipeline):
            name = self.label or self.default_label()
            raise PipelineError(
                f"{name!r}: a source is applied to the pipeline, not to {inputs!r}; write p | {type(self).__name__}"
            )
        return inputs.add(self, inputs)

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return GLOBAL

    def bounded_from(self, inputs: tuple[PCollection, ...]) -> bool:
        return self.bounded


class Create(Source):
    """A collection of the given elements; a dict gives its items. TimestampedValue sets an element's event time.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     same = p | hr.Create(["a", "b"]) | hr.Collect()
    >>> sorted(same)
    ['a', 'b']
    """

    def __init__(self, elements: Iterable[Any]) -> None:
        if isinstance(elements, str | bytes):
            raise PipelineError(
                f"Create takes an iterable of elements, got one string {elements!r}; write Create([{elements!r}])"
            )
        self.elements: list[Any] = []
        self.times: list[int | None] = []
        for element in elements.items() if isinstance(elements, Mapping) else elements:
            if isinstance(element, TimestampedValue):
                self.elements.append(element.value)
                self.times.append(element.timestamp)
            else:
                self.elements.append(element)
                self.times.append(None)

    def __str__(self) -> str:
        return f"Create({len(self.elements)} elements)"

    def functions(self) -> tuple[object, ...]:
        return (self.elements,)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        kind = common_type(self.elements)
        schema = schema_of(kind)
        if schema is not None:
            try:
                schema.to_columns(self.elements)
            except (
                ValueError,
                TypeError,
                OverflowError,
            ):  # e.g. a lone surrogate, which is no text to a column
                return None
        return kind


class Rate(Source):
    """The numbers from 0 on, so many each second, with the time each was due: an endless source to try things with.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | hr.Rate(100)
    <PCollection of int from 'Rate', unbounded>
    """

    bounded = False
    output_type = int

    def __init__(self, rows_per_second: int) -> None:
        if not isinstance(rows_per_second, int) or rows_per_second < 1:
            raise PipelineError(f"Rate takes how many numbers a second, at least 1, got {rows_per_second!r}")
        self.rows_per_second = rows_per_second

    def __str__(self) -> str:
        return f"Rate({self.rows_per_second} a second)"


class ReadFiles(Source):
    """A source that reads files at a path: one path or a list of them, globs allowed.

    In a stream, `watermark` is how event times tell how far it has come; each path is a partition of its own.
    """

    format: str

    def __init__(self, path: str | list[str], *, watermark: WatermarkPolicy = Monotonic()) -> None:
        self.paths = [path] if isinstance(path, str) else list(path)
        self.watermark = checked_policy(type(self).__name__, watermark)
        if not self.paths or not all(isinstance(path, str) and path for path in self.paths):
            raise PipelineError(f"{type(self).__name__} takes a path or a list of paths, got {path!r}")

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.paths))})"


class ReadText(ReadFiles):
    """The lines of text files.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\n")
    >>> with hr.Pipeline() as p:
    ...     lines = p | hr.ReadText(f"{folder}/*.txt") | hr.Collect()
    >>> sorted(lines)
    ['or not', 'to be']
    """

    format = "text"
    output_type = str


class ReadRows(ReadFiles, RecordSource):
    """A source of rows.

    `schema` is DDL text, a Spark StructType, or a NamedTuple or dataclass whose objects the elements become;
    `event_time` names the column that holds the event time: a timestamp, ISO 8601 text or seconds.

    A record is bad if it is malformed, a field is not of its column's type, or its event time is missing, no time, or
    not in the years 1 to 9999. Bad records are no elements. They are counted in `metrics()` by reason, and `status()`
    shows the last. `bad="fail"` ends the run at the first; "skip" only counts them; by default they are also an output
    of their own if that is asked for: with_exception_handling().
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        schema: Any = None,
        event_time: str | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        super().__init__(path, watermark=watermark)
        self.schema = schema
        self.event_time = event_time
        self.bad = self.checked_bad(bad)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return self.schema if isinstance(self.schema, type) and schema_of(self.schema) is not None else ROWS


class ReadJson(ReadRows):
    """The rows of JSON-lines files: each line an object. Blank lines are none.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.json").write_text('{"user": "amy", "n": 1}\\n')
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.ReadJson(str(folder), schema="user string, n long") | hr.Collect()
    >>> list(rows)
    [Row(user='amy', n=1)]
    """

    format = "json"


class ReadCsv(ReadRows):
    """The rows of CSV files. With `header`, as usual, the first line of each names the columns.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("user,n\\namy,1\\n")
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.ReadCsv(str(folder), schema="user string, n long") | hr.Collect()
    >>> list(rows)
    [Row(user='amy', n=1)]
    """

    format = "csv"

    def __init__(
        self,
        path: str | list[str],
        *,
        schema: Any = None,
        event_time: str | None = None,
        header: bool = True,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        super().__init__(path, schema=schema, event_time=event_time, watermark=watermark, bad=bad)
        self.header = header


class ReadParquet(ReadRows):
    """The rows of Parquet files, of which nothing but the event time can be bad.

    >>> import headrace as hr, pyarrow as pa, pyarrow.parquet, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.parquet.write_table(pa.table({"user": ["amy"], "n": [1]}), f"{folder}/a.parquet")
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.ReadParquet(folder) | hr.Collect()
    >>> list(rows)
    [Row(user='amy', n=1)]
    """

    format = "parquet"

    @property
    def checks(self) -> bool:
        return self.event_time is not None
