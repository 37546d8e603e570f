"""Tests what WriteTable checks before it opens a database."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.errors import PipelineError


class Hit(NamedTuple):
    url: str
    hits: int


@pytest.mark.parametrize(
    ("url", "redacted", "password"),
    [
        ("sqlite:///a.db", "sqlite+pysqlite:///a.db", None),
        ("postgresql://amy:s3cret@host:5433/db", "postgresql+psycopg://amy:***@host:5433/db", "s3cret"),
        ("postgresql+psycopg:///db?password=s3cret&user=amy", "postgresql+psycopg:///db?user=amy", "s3cret"),
    ],
)
def test_a_url_is_printed_without_its_password(url: str, redacted: str, password: str | None) -> None:
    sink = hr.WriteTable(url, "hits", key="url", mode="upsert")
    assert str(sink) == f"WriteTable({redacted!r}, 'hits', key=['url'], mode='upsert')"
    assert "s3cret" not in f"{sink!r} {vars(sink)}"
    assert sink.url.password == password


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://amy:s3cret@host/db", "got a URL of 'mysql'"),
        ("postgresql+asyncpg://amy:s3cret@host/db", "got a URL of 'postgresql+asyncpg'"),
        ("postgresql://amy:s3cret@host:s3cret/db", "not the URL of a database"),
        ("hits.db", "such as 'sqlite:///FILE' or 'postgresql://USER:PASSWORD@HOST:PORT/DATABASE'"),
        (None, "not the URL of a database"),
        ("sqlite://", "a SQLite database in memory is of one process only; give a file"),
    ],
)
def test_an_unsupported_url_is_refused_with_the_supported_ones(url: Any, message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        hr.WriteTable(url, "hits")
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "replace"}, "mode must be 'append', 'upsert' or 'retract', got 'replace'"),
        ({"mode": "upsert"}, "mode='upsert' needs a key"),
        ({"key": ["url"]}, "mode='append' adds every element, so it has no key, got ['url']"),
        ({"key": 5, "mode": "upsert"}, "key must be a list of column names, got 5"),
        ({"key": ["url", "url"], "mode": "upsert"}, "key has a name twice"),
        ({"columns": "url"}, "columns must be a list of column names, got 'url'"),
        ({"columns": ["a"], "key": ["b"], "mode": "upsert"}, "key 'b' is not among the columns ['a']"),
        ({"table": ""}, "takes the name of a table, got ''"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Any, message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        hr.WriteTable("sqlite:///a.db", options.pop("table", "hits"), **options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("elements", "columns", "message"),
    [
        ([("a", 1)], None, "have no column names; give columns=[...] with a name for each of the 2 parts"),
        (["a"], None, "a name for each of the 1 parts"),
        ([("a", 1)], ["word"], "columns names 1 parts, ['word'], but the elements of 'elements'"),
        ([Hit("a", 1)], ["url", "hits"], "have column names already; leave it out, or rename with Select"),
    ],
)
def test_elements_whose_columns_have_no_names_are_refused_where_it_is_written(
    elements: Any, columns: Any, message: str
) -> None:
    collection = hr.Pipeline() | "elements" >> hr.Create(elements)
    with pytest.raises(PipelineError) as raised:
        collection | hr.WriteTable("sqlite:///a.db", "hits", columns=columns)
    assert message in str(raised.value)


def test_it_is_explained_without_the_password() -> None:
    p = hr.Pipeline()
    p | hr.Create([Hit("a", 1)]) | hr.WriteTable("postgresql://amy:s3cret@host/db", "hits")
    assert "write  WriteTable('postgresql+psycopg://amy:***@host/db', 'hits', mode='append')" in p.explain()
    assert "s3cret" not in p.explain() + p.explain(stream=True)


def test_a_table_by_uri() -> None:
    sink = hr.Write("postgresql://amy:s3cret@host/db?sslmode=require&table=hits&mode=upsert&key=url,day")
    assert str(sink) == (
        "WriteTable('postgresql+psycopg://amy:***@host/db?sslmode=require', 'hits', key=['url', 'day'], mode='upsert')"
    )
    named = hr.Write("sqlite:///a.db", table="hits", columns=["word", "n"])
    assert str(named) == "WriteTable('sqlite+pysqlite:///a.db', 'hits', mode='append')"
    with pytest.raises(PipelineError, match=r"WriteTable needs the table: \?table=\.\.\. in the URI") as raised:
        hr.Write("postgresql://amy:s3cret@host/db")
    assert "s3cret" not in str(raised.value)
