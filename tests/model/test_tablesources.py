"""Tables as sources: what their declarations accept, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr

URL = "sqlite:///shop.db"


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda: hr.ReadTable(URL),
            r"ReadTable reads a table or a query, got neither; write ReadTable\(url, 'visits'\)",
        ),
        (lambda: hr.ReadTable(URL, "sales", query="SELECT 1"), "reads a table or a query, got both"),
        (lambda: hr.ReadTable(URL, ""), "table must be text, got ''"),
        (lambda: hr.ReadTable(URL, "sales", partitions=4), "4 partitions need a column.*add partition_column="),
        (lambda: hr.ReadTable(URL, "sales", partition_column="id", partitions=0), "at least 1, got 0"),
        (lambda: hr.ReadTable(URL, "sales", bad="explode"), "bad must be"),  # type: ignore[arg-type]
        (
            lambda: hr.ReadTable("mysql://amy:s3cret@host/db", "sales"),
            "ReadTable has to do with .* got a URL of 'mysql'",
        ),
        (lambda: hr.ReadTable("sqlite://", "sales"), "a SQLite database in memory is of one process only"),
        (
            lambda: hr.ReadJdbc("postgresql://host/db", "sales"),
            "ReadJdbc takes the URL of a JDBC driver, such as 'jdbc:",
        ),
    ],
)
def test_what_is_refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match) as refused:
        build()
    assert "s3cret" not in str(refused.value)


def test_no_password_is_shown() -> None:
    for source in (
        hr.ReadTable("postgresql://amy:s3cret@host/db", "sales"),
        hr.ReadJdbc("jdbc:mysql://amy:s3cret@host/db", "sales"),
        hr.ReadJdbc("jdbc:postgresql://host/db?user=amy&password=s3cret&ssl=true", query="SELECT\n  1"),
        hr.ReadJdbc("jdbc:sqlserver://host;password=s3cret;user=amy", "sales", properties={"password": "s3cret"}),
    ):
        assert "s3cret" not in str(source)
        assert "***" in str(source)
    assert str(hr.ReadJdbc("jdbc:derby:memory:a", query="SELECT\n  1")) == "ReadJdbc('jdbc:derby:memory:a', 'SELECT 1')"
