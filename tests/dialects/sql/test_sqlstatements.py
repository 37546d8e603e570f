"""Statements as they are parsed, and what is refused about them, with the place in the whole text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace as hr
from headrace.dialects.sql import sqlstatements as statements
from headrace.dialects.sql.sqlstatements import parse_statements
from headrace.model.times import SECOND

SCRIPT = """
CREATE STREAM trades (symbol text, price double, size bigint, at timestamp,  -- a comment; with a semicolon
                      WATERMARK FOR at AS at - INTERVAL '5' SECOND)
  WITH (topic = 'trades', partitions = 4, retention = '1 hour');
CREATE CONTINUOUS VIEW IF NOT EXISTS minutes WITH (from = 'earliest', ttl = '7 days', ttl_column = 'window_start') AS
  SELECT symbol, window_start, count(*) AS n FROM TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE)
  GROUP BY symbol, window_start, window_end EMIT AFTER WATERMARK;
INSERT INTO trades VALUES ('IBM', 142.5, 100, '2026-01-31T12:00:01Z'), ('a;b''s', -1.5, NULL, TIMESTAMP '2026-01-31');
INSERT INTO trades (symbol, size) VALUES ('SAP', 1);
SELECT * FROM minutes WHERE symbol = 'IBM' ORDER BY window_start DESC LIMIT 5;
COPY trades FROM 'day.csv' (FORMAT json, HEADER); SHOW STREAMS; DESCRIBE minutes;
SUBSCRIBE TO minutes; PAUSE VIEW minutes;
EXPLAIN SELECT symbol FROM trades; RESUME minutes; DROP VIEW IF EXISTS minutes
"""


def test_every_statement() -> None:
    stream, view, insert, partly, select, copy, show, describe, subscribe, pause, explain, resume, drop = (
        parse_statements(SCRIPT)
    )
    assert isinstance(stream, statements.CreateStream)
    assert stream.columns == {"symbol": "STRING", "price": "DOUBLE", "size": "BIGINT", "at": "TIMESTAMP"}
    assert (stream.name, stream.event_time, stream.disorder) == ("trades", "at", 5 * SECOND)
    assert stream.options == {"topic": "trades", "partitions": 4, "retention": "1 hour"}
    assert isinstance(view, statements.CreateQuery)
    assert (view.name, view.kind, view.if_not_exists) == ("minutes", "view", True)
    assert view.options == {"from": "earliest", "ttl": "7 days", "ttl_column": "window_start"}
    assert isinstance(insert, statements.Insert)
    assert insert.rows == (("IBM", 142.5, 100, "2026-01-31T12:00:01Z"), ("a;b's", -1.5, None, "2026-01-31"))
    assert isinstance(partly, statements.Insert) and partly.columns == ("symbol", "size")
    assert isinstance(select, statements.Select) and select.text.strip().startswith("SELECT * FROM minutes")
    assert isinstance(copy, statements.Copy) and (copy.stream, copy.file) == ("trades", "day.csv")
    assert copy.options == {"format": "json", "header": True}
    assert isinstance(show, statements.Show) and show.kind == "stream"
    assert isinstance(describe, statements.Describe) and describe.name == "minutes"
    assert isinstance(subscribe, statements.Subscribe) and subscribe.view == "minutes"
    assert isinstance(pause, statements.SetRunning) and not pause.running
    assert isinstance(explain, statements.Explain)
    assert isinstance(resume, statements.SetRunning) and resume.running
    assert isinstance(drop, statements.Drop) and (drop.kind, drop.name, drop.if_exists) == ("view", "minutes", True)


REFUSED = {
    "CREATE STREAM t (a text, A int)": "two columns are called 'A'",
    "CREATE STREAM t (a)": "the column 'a' needs a type",
    "CREATE STREAM t": "a stream has columns",
    "CREATE STREAM t (time timestamp, WATERMARK FOR tmie AS tmie)": "no column 'tmie', did you mean 'time'?",
    "CREATE STREAM t (at timestamp, WATERMARK FOR at AS now())": "a watermark is at or at - INTERVAL",
    "CREATE STREAM t (a text) WITH (partition = 3)": "there is no option 'partition', did you mean 'partitions'?",
    "CREATE INDEX t (a int)": "CREATE is followed by STREAM, TABLE, CONTINUOUS VIEW or CONTINUOUS TRANSFORM",
    "CREATE TABLE t (a int)": "a table is WITH (parquet = 'path') or WITH (database",
    "CREATE TABLE t (a int) WITH (parquet = 'p', table = 't')": "a table is WITH (parquet = 'path') or WITH (database",
    "CREATE TABLE t WITH (parquet = 'p')": "a table has columns; write CREATE TABLE name (column type, ...)",
    "CREATE VIEW v": "CREATE VIEW name is followed by AS and a SELECT",
    "INSERT INTO t SELECT 1": "INSERT takes VALUES",
    "INSERT INTO t (a, b) VALUES (1)": "a row has 1 values for 2 columns",
    "INSERT INTO t VALUES (now())": "a value is a constant, got now()",
    "UPDATE t SET a = 1": "no statement begins with 'UPDATE'; there are CREATE, DROP,",
    "(TRUNCATE TABLE t)": "no statement begins with 'TRUNCATE'",
    "EXPLAIN DROP VIEW v": "EXPLAIN is followed by a SELECT",
    "SELEC 1": "no statement begins with 'SELEC'; did you mean SELECT?",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(hr.PipelineError) as caught:
        parse_statements(text)
    assert REFUSED[text] in str(caught.value)


def test_an_error_says_where_in_the_whole_text_it_is() -> None:
    with pytest.raises(hr.PipelineError, match=r"line 3, column 38: there is no option 'tll', did you mean 'ttl'"):
        parse_statements("SHOW VIEWS;\n\nSHOW STREAMS; CREATE VIEW v WITH (   tll = '1 day') AS SELECT a FROM b")


def test_statements_of_pages_are_statements() -> None:
    root = Path(__file__).parents[3]
    found = {
        (page.name, block): parse_statements(block)
        for page in (root / "README.md", *(root / "docs").glob("*.md"))
        for block in re.findall(r"^```sql\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    }
    assert len(found) >= 6
    assert all(found.values())
