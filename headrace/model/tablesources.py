"""Declares database tables and queries as sources. What opens and reads them is in `headrace.edges` and the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.model.badrecords import Bad, RecordSource
from headrace.model.errors import PipelineError
from headrace.model.pipeline import PCollection
from headrace.model.schema import ROWS, schema_of
from headrace.model.secrets import redact_url
from headrace.model.sources import Source
from headrace.model.tables import database_url
from headrace.model.watermarks import Monotonic, WatermarkPolicy, checked_policy

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_PASSWORD: Final = re.compile(r"(password=)[^&;]*|(?<=//)([^/@:]*:)[^/@]*(?=@)", re.IGNORECASE)


class TableSource(Source, RecordSource):
    """A source of the rows of a database: of a `table`, or of a `query`, a SELECT without parameters.

    With `partition_column`, a column of numbers, dates or timestamps, its values from the least to the greatest are
    divided into `partitions` ranges, which are read at the same time; by default as many as Spark has cores. Without
    it, one task reads all.

    `schema`, if it is given, has the columns to read: DDL text, a Spark StructType, or a NamedTuple or dataclass whose
    objects the elements become. `event_time` is the name of the column with the event time; a row where that is missing
    or no time is a bad record.

    A run reads its tables once. A stream reads them when it first starts, and stores what it read in its checkpoint: a
    restart does not read them again.
    """

    def __init__(
        self,
        table: str | None,
        query: str | None,
        schema: Any,
        event_time: str | None,
        partition_column: str | None,
        partitions: int | None,
        watermark: WatermarkPolicy,
        bad: Bad,
    ) -> None:
        name = type(self).__name__
        for option, value in {"table": table, "query": query}.items():
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise PipelineError(f"{name}: {option} must be text, got {value!r}")
        if (table is None) == (query is None):
            what = "both" if table is not None else "neither"
            raise PipelineError(
                f"{name} reads a table or a query, got {what}; write {name}(url, 'visits') or query=..."
            )
        if partitions is not None and (
            isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
        ):
            raise PipelineError(f"{name}: partitions must be a number, at least 1, got {partitions!r}")
        if partition_column is None and partitions is not None and partitions > 1:
            raise PipelineError(
                f"{name}: {partitions} partitions need a column to divide rows by; add partition_column=..., the name "
                "of a column of numbers, dates or timestamps"
            )
        self.table, self.query = table, None if query is None else query.strip().rstrip(";")
        self.schema, self.event_time = schema, event_time
        self.partition_column, self.partitions = partition_column, partitions
        self.watermark = checked_policy(name, watermark)
        self.bad = self.checked_bad(bad)

    @property
    def checks(self) -> bool:
        return self.event_time is not None

    @property
    def what(self) -> str:
        """The table, or the query in one line."""
        return self.table if self.table is not None else " ".join(str(self.query).split())

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return self.schema if isinstance(self.schema, type) and schema_of(self.schema) is not None else ROWS


class ReadTable(TableSource):
    """Reads the rows of a table or of a query from SQLite or PostgreSQL.

    `url` is an SQLAlchemy URL: "sqlite:///shop.db", "postgresql://user:password@host/db". All partitions of a
    PostgreSQL database are read as of one instant.

    >>> import headrace as hr, sqlite3, tempfile
    >>> file = tempfile.mkdtemp() + "/shop.db"
    >>> with sqlite3.connect(file) as database:
    ...     _ = database.execute("CREATE TABLE sales (id INTEGER, city TEXT)")
    ...     _ = database.execute("INSERT INTO sales VALUES (1, 'Rome'), (2, 'Oslo')")
    >>> with hr.Pipeline() as p:
    ...     sales = p | hr.ReadTable(f"sqlite:///{file}", "sales", partition_column="id", partitions=2) | hr.Collect()
    >>> sorted(sales)
    [Row(id=1, city='Rome'), Row(id=2, city='Oslo')]
    """

    def __init__(
        self,
        url: str | URL,
        table: str | None = None,
        *,
        query: str | None = None,
        schema: Any = None,
        event_time: str | None = None,
        partition_column: str | None = None,
        partitions: int | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        self.url = database_url("ReadTable", url)
        super().__init__(table, query, schema, event_time, partition_column, partitions, watermark, bad)

    def __str__(self) -> str:
        return f"ReadTable({redact_url(self.url)!r}, {self.what!r})"


class ReadJdbc(TableSource):
    """Reads the rows of a table or of a query from any database that has a JDBC driver, by Spark.

    The driver's jar must be on the class path of the session: `Pipeline(spark=...)` with a session that was made with
    spark.jars, or spark-submit --jars. `driver` is the name of its class, if the jar does not declare it; `properties`
    are those of the connection, e.g. {"user": "amy", "password": "..."}. For SQLite and PostgreSQL, ReadTable needs no
    jar.

    >>> import headrace as hr
    >>> hr.Pipeline() | hr.ReadJdbc("jdbc:mysql://host/shop", "sales", properties={"user": "amy", "password": "secret"})
    <PCollection of rows from 'ReadJdbc', bounded>
    """

    def __init__(
        self,
        url: str,
        table: str | None = None,
        *,
        query: str | None = None,
        schema: Any = None,
        event_time: str | None = None,
        partition_column: str | None = None,
        partitions: int | None = None,
        driver: str | None = None,
        properties: dict[str, str] | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        if not isinstance(url, str) or not url.startswith("jdbc:"):
            raise PipelineError("ReadJdbc takes the URL of a JDBC driver, such as 'jdbc:mysql://host/database'")
        self.url, self.driver, self.properties = url, driver, dict(properties or {})
        super().__init__(table, query, schema, event_time, partition_column, partitions, watermark, bad)

    def __str__(self) -> str:
        return f"ReadJdbc({_PASSWORD.sub(lambda found: (found[1] or found[2]) + '***', self.url)!r}, {self.what!r})"
