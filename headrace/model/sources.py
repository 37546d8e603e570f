"""Declares the sources: Create, Rate and the readers of files. The engine opens the files."""

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
    """A primitive without inputs: it is applied to the pipeline itself."""

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
    """Makes a collection of these elements; of a dict, its items. TimestampedValue sets an element's event time.

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
    """Generates the numbers from 0 on, at a fixed rate, with their due times as timestamps: an endless test source.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | hr.Rate(100)
    <PCollection of int from 'Rate', unbounded>
    """

    bounded = False
    output_type = int

    def __init__(self, rows_per_second: int) -> None:
        if not isinstance(rows_per_second, int) or rows_per_second < 1:
            raise PipelineError(f"Rate takes a number of rows per second, at least 1, got {rows_per_second!r}")
        self.rows_per_second = rows_per_second

    def __str__(self) -> str:
        return f"Rate({self.rows_per_second} a second)"


class ReadFiles(Source):
    """A source that reads files: one path or a list of paths, with globs.

    In a stream, `watermark` is the policy that computes the watermark from event times; each path is a partition.
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
    """Reads the lines of text files.

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
    """A source of files with rows.

    `schema` is DDL text, a Spark StructType, or a NamedTuple or dataclass whose objects the elements become;
    `event_time` is the name of the column with the event time: a timestamp, ISO 8601 text or seconds.

    A record is bad if it is malformed, if a field does not have its column's type, or if its event time is missing, is
    not a time, or is not in the years 1 to 9999. Bad records do not become elements. `metrics()` counts them by reason,
    and `status()` shows the last one. `bad="fail"` ends the run at the first one; "skip" only counts them; with the
    default "dead_letters", `with_exception_handling()` also gives them as an output of their own.
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
    """Reads the rows of JSON-lines files: each line is an object. Blank lines are ignored.

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
    """Reads the rows of CSV files. With `header`, the default, the first line of each file names the columns.

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
    """Reads the rows of Parquet files. A record can be bad only by its event time.

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
