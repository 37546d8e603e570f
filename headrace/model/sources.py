"""Declares the sources: Create, Rate and the readers of files. The engine opens the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from headrace.model.arrowtables import is_spark_frame, rows_table, table_of
from headrace.model.badrecords import Bad, RecordSource
from headrace.model.csvformat import CsvFormat
from headrace.model.dofn import TimestampedValue
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Pipeline, Primitive
from headrace.model.schema import ROWS, common_type, rows_schema, schema_of
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


class Create(Source, RecordSource):
    """Makes a collection of these elements; of a dict, its items. TimestampedValue sets an element's event time.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     same = p | hr.Create(["a", "b"]) | hr.Collect()
    >>> sorted(same)
    ['a', 'b']

    A table (of pandas, polars, Arrow or Spark) becomes a collection with its columns, whose elements are Rows. So do
    dicts, or tuples, with a `schema`: DDL text, a Spark StructType, an Arrow schema, or a NamedTuple or dataclass whose
    objects the elements become. `event_time` and `bad` are those of ReadJson and its like.

    >>> import pandas as pd
    >>> with hr.Pipeline() as p:
    ...     sales = p | hr.Create(pd.DataFrame({"city": ["Rome", "Oslo"], "price": [3.5, 9.0]}))
    ...     cheap = sales | hr.Where("price < 9") | hr.Collect()
    ...     rows = p | "rows" >> hr.Create([{"n": 1}, {}], schema="n long") | "both" >> hr.Collect()
    >>> list(cheap), list(rows)
    ([Row(city='Rome', price=3.5)], [Row(n=1), Row(n=None)])
    """

    def __init__(
        self,
        elements: Iterable[Any],
        *,
        schema: Any = None,
        event_time: str | None = None,
        bad: Bad = "dead_letters",
    ) -> None:
        if isinstance(elements, str | bytes):
            raise PipelineError(
                f"Create takes an iterable of elements, got one string {elements!r}; write Create([{elements!r}])"
            )
        self.elements: list[Any] = []
        self.times: list[int | None] = []
        self.schema, self.event_time, self.bad = schema, event_time, self.checked_bad(bad)
        self.frame: Any = elements if is_spark_frame(elements) else None
        self.table: pa.Table | None = None if self.frame is not None else table_of(elements)
        if self.frame is not None or self.table is not None:
            self._check_table()
        else:
            self._take(elements)
        names = self.column_names()
        if names and event_time is not None and event_time not in names:
            raise PipelineError(f"Create: event_time={event_time!r} is no column; there are {', '.join(names)}")

    def _check_table(self) -> None:
        if self.schema is not None:
            raise PipelineError("Create: a table has its own columns; leave out schema, and change them with Select")
        if getattr(self.frame, "isStreaming", False):
            raise PipelineError("Create: the Spark DataFrame is a stream, which has no end; read its source instead")

    def _take(self, elements: Iterable[Any]) -> None:
        if self.event_time is not None and self.schema is None:
            raise PipelineError("Create: event_time names a column, which elements without a schema do not have")
        if not isinstance(elements, Iterable):
            lazy = "; call its collect()" if hasattr(elements, "collect") else ""
            raise PipelineError(
                "Create takes an iterable of elements or a table (pandas, polars, Arrow, Spark), got a "
                f"{type(elements).__name__}{lazy}"
            )
        for element in elements.items() if isinstance(elements, Mapping) else elements:
            if not isinstance(element, TimestampedValue):
                self.elements.append(element)
                self.times.append(None)
            elif self.event_time is None:
                self.elements.append(element.value)
                self.times.append(element.timestamp)
            else:
                raise PipelineError(f"Create: {element!r} has a time already; leave out either that or event_time")
        known = self.schema if isinstance(self.schema, pa.Schema) else None
        if isinstance(self.schema, type) and (declared := schema_of(self.schema)) is not None:
            known = pa.schema(list(zip(declared.names, declared.types, strict=True)))
        if known is not None:
            self.table = table_of(rows_table(self.elements, known))

    def __str__(self) -> str:
        if self.frame is None and self.table is None:
            return f"Create({len(self.elements)} elements)"
        rows = "" if self.table is None else f"{self.table.num_rows:,} rows of "
        return f"Create({rows}{', '.join(self.column_names())})"

    @property
    def checks(self) -> bool:
        return self.event_time is not None

    def column_names(self) -> list[str]:
        """Returns the names of the columns, as far as they are known without Spark."""
        return (
            list(self.frame.columns)
            if self.frame is not None
            else []
            if self.table is None
            else self.table.column_names
        )

    def functions(self) -> tuple[object, ...]:
        return (self.elements,)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        if isinstance(self.schema, type) and self.table is not None:
            return self.schema
        if self.table is not None:
            return rows_schema(self.table.schema)
        if self.frame is not None or self.schema is not None:
            return ROWS
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


def from_spark(frame: Any) -> PCollection:
    """Returns the rows of a Spark DataFrame as a collection, in a new pipeline on the DataFrame's session.

    In a pipeline that exists, write `p | hr.Create(frame)`.

    >>> import headrace as hr
    >>> from headrace.engine.spark.session import spark_session
    >>> sales = spark_session().createDataFrame([("Rome", 3), ("Rome", 4)], "city string, price long")
    >>> totals = hr.from_spark(sales) | hr.GroupBy("city").aggregate(total=hr.sum("price"))
    >>> totals.to_spark().collect()
    [Row(city='Rome', total=7)]
    """
    if not is_spark_frame(frame):
        raise PipelineError(f"from_spark takes a Spark DataFrame, got a {type(frame).__name__}; use p | hr.Create(...)")
    created: PCollection = Pipeline(spark=frame.sparkSession) | Create(frame)
    return created


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


class FileSource(Source):
    """A source of files: one path or a list of paths, with globs.

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


class ReadText(FileSource):
    """Reads the lines of text files. With `with_filename`, elements are Rows of `filename` and `line`.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\n")
    >>> with hr.Pipeline() as p:
    ...     lines = p | hr.ReadText(f"{folder}/*.txt") | hr.Collect()
    >>> sorted(lines)
    ['or not', 'to be']
    >>> with hr.Pipeline() as p:
    ...     named = p | hr.ReadText(f"{folder}/*.txt", with_filename=True) | hr.Collect()
    >>> sorted((row.filename == f"{folder}/a.txt", row.line) for row in named)
    [(True, 'or not'), (True, 'to be')]
    """

    format = "text"

    def __init__(
        self, path: str | list[str], *, with_filename: bool = False, watermark: WatermarkPolicy = Monotonic()
    ) -> None:
        super().__init__(path, watermark=watermark)
        self.with_filename = with_filename

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return ROWS if self.with_filename else str


class ReadFiles(FileSource, RecordSource):
    """Reads whole files: elements are Rows of `filename` and `content`, which is bytes or, with `text`, UTF-8 text.

    With `text`, a file that is not UTF-8 is a bad record, and `bad` says what becomes of it, as in other sources. A
    file must fit into memory, and have less than 2 GB.

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.xml").write_text("<a>1</a>")
    >>> with hr.Pipeline() as p:
    ...     files = p | hr.ReadFiles(f"{folder}/*.xml", text=True) | hr.Collect()
    >>> [(pathlib.Path(file.filename).name, file.content) for file in files]
    [('a.xml', '<a>1</a>')]
    """

    format = "binaryFile"
    output_type = ROWS

    def __init__(
        self,
        path: str | list[str],
        *,
        text: bool = False,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        super().__init__(path, watermark=watermark)
        self.text = text
        self.bad = self.checked_bad(bad)

    @property
    def checks(self) -> bool:
        return self.text


class ReadRows(FileSource, RecordSource):
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
    """Reads the rows of CSV files as RFC 4180 describes them, or in the format that the options describe.

    - separator, quote: one character each; `quote=None` if nothing is quoted
    - escape: the character before a quote in quotes; if not given, such a quote is doubled
    - header: whether the first line of each file has names of columns. The order of columns is that of the `schema`,
      which need not use the same names, but must not have a name of the header in another place
    - null: the text of a field that is null. If it is "", the default, a field of nothing is null, and `""` with its
      quotes is the empty text. In a column that is not text, both are null always
    - encoding: "utf-8", "ascii", "latin-1", "utf-16" or "utf-32"; other bytes are read as the character U+FFFD
    - multi_line: whether texts in quotes may have line breaks. A file is then read by one task, from begin to end. Its
      first line break, which must be the end of a line, says how all lines end; if that is by "\\r\\n", such a break in
      a text is read as "\\n"

    >>> import headrace as hr, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text('user,n\\n"Amy ""Z"", Ltd",1\\n')
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.ReadCsv(str(folder), schema="user string, n long") | hr.Collect()
    >>> list(rows)
    [Row(user='Amy "Z", Ltd', n=1)]
    """

    format = "csv"

    def __init__(
        self,
        path: str | list[str],
        *,
        schema: Any = None,
        event_time: str | None = None,
        separator: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,
        null: str = "",
        encoding: str = "utf-8",
        multi_line: bool = False,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        super().__init__(path, schema=schema, event_time=event_time, watermark=watermark, bad=bad)
        self.csv = CsvFormat("ReadCsv", separator, quote, escape, header, null, encoding, multi_line)


class ReadAvro(ReadRows):
    """Reads the rows of Avro files. A record can be bad only by its event time; a file that is not Avro fails the run.

    Without a `schema`, the columns are those of one of the files; columns that another file does not have are null in
    its rows. Each file is decoded by one task, in memory.

    >>> import headrace as hr, tempfile
    >>> folder = tempfile.mkdtemp() + "/out"
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([("amy", 1)]) | hr.Select(user="_1", n="_2") | hr.WriteAvro(folder)
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.ReadAvro(folder) | hr.Collect()
    >>> list(rows)
    [Row(user='amy', n=1)]
    """

    format = "avro"

    @property
    def checks(self) -> bool:
        return self.event_time is not None


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
