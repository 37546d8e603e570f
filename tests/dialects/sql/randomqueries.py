"""Random queries of the grammar, and what they are for a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

CONDITIONS = ("x > 0", "y % 2 = 0", "k IS NOT NULL", "x IS NULL OR x < y", "k = 'a' AND y > 1")
KEYS = ("k", "y % 2", "coalesce(x, 0)")
AGGREGATES = (
    *("count(*)", "count(x)", "count(DISTINCT x)", "sum(x)", "avg(y)", "min(x)", "max(y)"),
    *("sum(x + y)", "count(*) FILTER (WHERE x > 0)", "max(y) - min(y)", "count_if(coalesce(x, 0) = 1)"),
)
BOUNDS = "window_start, window_end"
SHAPES = ("rows", "groups", "distinct", "nested", "first", "first groups", "of the first", "union")


@dataclass(frozen=True)
class Source:
    """What a query reads: the stream, or the stream in windows. `rows` is the table for a batch, in DuckDB's SQL."""

    text: str
    rows: str
    windowed: bool = False
    keyed: bool = False  # windows are of k, the key that queries over them group by


def _tumble(size: int) -> Source:
    return replace(_hop(size, size), text=f"TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{size}' SECONDS)")


def _hop(slide: int, size: int) -> Source:
    starts = f"""SELECT *, make_timestamp(1000000 * ((epoch_us(ts) // 1000000) // {slide} * {slide}
        - {slide} * unnest(range({size // slide})))) AS window_start FROM t WHERE {{condition}}"""
    rows = f"SELECT *, window_start + INTERVAL '{size}' SECONDS AS window_end FROM ({starts})"
    text = f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '{slide}' SECONDS, INTERVAL '{size}' SECONDS)"
    return Source(text, rows, windowed=True)


def _session(gap: int) -> Source:
    since = "SELECT *, ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) AS since FROM t WHERE {condition}"
    numbered = f"""SELECT *, sum(CASE WHEN since < INTERVAL '{gap}' SECONDS THEN 0 ELSE 1 END)
        OVER (PARTITION BY k ORDER BY ts, id) AS session FROM ({since})"""
    rows = f"""SELECT *, min(ts) OVER (PARTITION BY k, session) AS window_start,
        max(ts) OVER (PARTITION BY k, session) + INTERVAL '{gap}' SECONDS AS window_end FROM ({numbered})"""
    return Source(f"SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '{gap}' SECONDS)", rows, windowed=True, keyed=True)


def _rows(count: int) -> Source:
    """Windows of so many rows: their bounds are the numbers of their rows."""
    number = "(row_number() OVER (PARTITION BY k ORDER BY id) - 1)"
    first = f"SELECT *, {number} // {count} * {count} AS first FROM t WHERE {{condition}}"
    rows = f"SELECT *, first AS window_start, first + {count} AS window_end FROM ({first})"
    return Source(f"TUMBLE(TABLE t, DESCRIPTOR(ts), {count} ROWS)", rows, windowed=True, keyed=True)


STREAM = Source("t", "SELECT * FROM t WHERE {condition}")
TUMBLING = tuple(map(_tumble, (4, 10)))
HOPPING = (_hop(3, 6), _hop(2, 10))
KEYED = (*map(_session, (3, 8)), *map(_rows, (1, 3)))


@dataclass(frozen=True)
class Query:
    """A query over a stream t, and the same for a batch over the table `source`, whose rows are those of `rows`."""

    text: str
    batch: str
    rows: str


def _query(text: str, source: Source, condition: str) -> Query:
    """Makes a query of a text in which the source is to be filled in."""
    return Query(text.format(source.text), text.format("source"), source.rows.format(condition=condition))


@st.composite
def conditions(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(CONDITIONS)) if draw(st.booleans()) else "true"


@st.composite
def grouped(draw: st.DrawFn, source: Source, condition: str) -> tuple[str, bool]:
    """A SELECT with groups: k, n and s are columns, and those of the window if it groups by them."""
    key = "k" if source.keyed else draw(st.sampled_from(KEYS))
    windowed = source.windowed and (source.keyed or draw(st.integers(0, 3)) > 0)
    bounds = f", {BOUNDS}" if windowed else ""
    having = f" HAVING count(*) > {draw(st.integers(0, 2))}" if draw(st.booleans()) else ""
    one, other = draw(st.sampled_from(AGGREGATES)), draw(st.sampled_from(AGGREGATES))
    columns = f"{key} AS key{bounds}, {one} AS n, {other} AS s"
    return f"SELECT {columns} FROM {{}} WHERE {condition} GROUP BY {key}{bounds}{having}", windowed


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Any query whose answer is that over all rows so far."""
    shape, condition, n = draw(st.sampled_from(SHAPES)), draw(conditions()), draw(st.integers(1, 3))
    sources = (STREAM, *TUMBLING, *HOPPING, *(KEYED if shape == "groups" else ()))
    source = STREAM if shape in ("rows", "union") else draw(st.sampled_from(sources))
    inner, windowed = draw(grouped(source, condition))
    start = "window_start, " if windowed and draw(st.booleans()) else ""
    match shape:
        case "rows":
            columns = "id, k, x + y AS z, CASE WHEN x > y THEN 'up' ELSE k END AS way"
            text = f"SELECT {columns} FROM {{}} WHERE {condition}"
        case "groups":
            text = inner
        case "distinct":
            column = "window_start, " if source.windowed else ""
            text = f"SELECT DISTINCT {column}k, y % 2 AS odd FROM {{}} WHERE {condition}"
        case "nested":
            text = f"SELECT {start}n, count(*) AS c, max(s) AS most FROM ({inner}) GROUP BY {start}n"
        case "first groups":
            ties = "key, window_start" if windowed else "key"
            over = f"PARTITION BY {start}n % 2 ORDER BY s DESC, {ties}"
            text = f"SELECT *, ROW_NUMBER() OVER ({over}) AS r FROM ({inner}) QUALIFY r <= {n}"
        case "union":
            text = f"SELECT n, s FROM ({inner}) UNION ALL SELECT y, x FROM {{0}} WHERE {condition}".replace("{}", "{0}")
        case _:
            text = draw(first_rows(source, condition, n))
            if shape == "of the first":
                text = f"SELECT k, count(*) AS n, sum(x) AS s FROM ({text}) GROUP BY k"
    return _query(text, source, condition)


@st.composite
def first_rows(draw: st.DrawFn, source: Source, condition: str, n: int) -> str:
    """The first n rows of partitions, in an order that leaves nothing open."""
    partition = draw(st.sampled_from(("k", "k, window_start", "window_start") if source.windowed else ("k", "y % 2")))
    order = draw(st.sampled_from(("x DESC", "y, x", "x NULLS LAST")))
    start = ", window_start" if source.windowed else ""
    over = f"PARTITION BY {partition} ORDER BY {order}, id{start}"
    ranked = f"SELECT id, k, x, y{start}, ROW_NUMBER() OVER ({over}) AS r FROM {{}} WHERE {condition}"
    return f"SELECT * FROM ({ranked}) WHERE r <= {n}"


@st.composite
def final_queries(draw: st.DrawFn) -> Query:
    """A query whose windows emit once, when they are complete: over rows that were not late."""
    source, condition = draw(st.sampled_from((*TUMBLING, *HOPPING))), draw(conditions())
    key, one = draw(st.sampled_from(KEYS)), draw(st.sampled_from(AGGREGATES))
    text = f"SELECT {key} AS key, {BOUNDS}, {one} AS n FROM {{}} WHERE {condition} GROUP BY {key}, {BOUNDS}"
    if draw(st.booleans()):
        text = f"SELECT window_start, max(n) AS most, count(*) AS c FROM ({text}) GROUP BY {BOUNDS}"
    complete = f"SELECT * FROM ({source.rows}) WHERE window_end > seen AND window_end <= {{{{watermark}}}}"
    query = _query(text, replace(source, rows=complete), condition)
    return replace(query, text=f"{query.text} EMIT AFTER WATERMARK")


Batch = tuple[list[tuple[Any, ...]], int, bool]


def streams() -> st.SearchStrategy[list[Batch]]:
    """Batches: rows (k, x, y, seconds), by how much the watermark goes on after them, and whether it restarts then."""
    row = st.tuples(
        st.sampled_from([None, "a", "b"]), st.sampled_from([None, -1, 0, 1, 2]), st.integers(0, 3), st.integers(0, 40)
    )
    return st.lists(st.tuples(st.lists(row, max_size=6), st.integers(0, 20), st.booleans()), min_size=1, max_size=5)
