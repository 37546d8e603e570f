"""Transforms: streams from streams, in the same log, which go on when the directory is opened again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.log.topics import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = """CREATE STREAM trades (symbol text, price double, size bigint);
    CREATE STREAM sold (symbol text, value double)"""
TRANSFORM = """CREATE CONTINUOUS TRANSFORM valued INTO sold AS
    SELECT upper(symbol) AS symbol, price * size AS value FROM trades WHERE size > 0"""


@pytest.mark.slow("streams are started five times")
def test_a_transform_appends_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    expected: list[tuple[str, float]] = []

    def sold() -> list[tuple[Any, ...]]:
        return sorted(tuple(record.value.values()) for record in Log(home / "log").topic("sold").read(0))

    def insert(session: SqlSession, *trades: tuple[str, float, int]) -> None:
        session.execute("INSERT INTO trades VALUES " + ", ".join(map(repr, trades)))
        expected.extend((symbol.upper(), price * size) for symbol, price, size in trades if size > 0)
        session.catch_up(600)

    def table(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
        found = session.execute(query)[0].table
        assert found is not None
        return [tuple(row.values()) for row in found.to_pylist()]

    with SqlSession(str(home), spark=spark) as session:
        session.execute(STREAMS)
        for text, reason in {
            "CREATE TRANSFORM t AS SELECT symbol FROM trades": "a transform appends to a stream",
            "CREATE TRANSFORM t INTO solt AS SELECT symbol FROM trades": "did you mean 'sold'?",
            "CREATE TRANSFORM t INTO sold AS SELECT symbol FROM trades": "the query gives symbol string; name and CAST",
            "CREATE TRANSFORM t INTO trades AS SELECT * FROM trades": "would come back to it, by the stream 'trades'",
            "CREATE TRANSFORM t INTO sold AS SELECT symbol, sum(price) AS value FROM trades GROUP BY symbol": (
                "rows of a stream do not change"
            ),
            "DROP TRANSFORM t": "there is no transform 't'",
            "CREATE VIEW v WITH (ttl = '1 day') AS SELECT symbol FROM trades": "ttl needs the column",
        }.items():
            with pytest.raises(hr.HeadraceError) as caught:
                session.execute(text)
            assert reason in str(caught.value)
        session.execute(
            f"{TRANSFORM}; CREATE VIEW sums AS SELECT symbol, sum(value) AS total FROM sold GROUP BY symbol"
        )
        assert table(session, "SHOW TRANSFORMS") == [("valued", 0)]
        assert table(session, "DESCRIBE valued") == [("symbol", "string"), ("value", "double")]
        for text, reason in {
            "CREATE TRANSFORM t INTO trades AS SELECT symbol, value AS price, 1L AS size FROM sold": "would come back",
            "DROP STREAM sold": "reads the stream 'sold'",
            "DROP STREAM trades": "reads the stream 'trades'",
        }.items():
            with pytest.raises(hr.HeadraceError, match=reason):
                session.execute(text)
        insert(session, ("ibm", 2.0, 3), ("sap", 1.0, 0), ("ibm", 4.0, 1))
        assert sold() == sorted(expected)
    with SqlSession(str(home), spark=spark) as session:
        insert(session, ("sap", 1.5, 2))
        assert sold() == sorted(expected)
        session.catch_up(600)  # with what the transform has appended
        assert table(session, "SELECT * FROM sums ORDER BY symbol") == [("IBM", 10.0), ("SAP", 3.0)]
        session.execute("DROP TRANSFORM valued")
        assert table(session, "SHOW TRANSFORMS") == []
        session.execute("INSERT INTO trades VALUES ('ibm', 1.0, 1)")
        assert sold() == sorted(expected)
