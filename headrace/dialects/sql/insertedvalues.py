"""INSERT: constants become values of a stream's columns, and rows of it."""

from __future__ import annotations

from headrace.dialects.sql.literals import typed_value
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import CreateStream, Insert
from headrace.log.producers import Producer
from headrace.log.topics import Topic


def insert_rows(statement: Insert, stream: CreateStream, topic: Topic) -> None:
    """Appends rows to the topic of a stream; a column without a value is null."""
    names = list(statement.columns or stream.columns)
    with Producer(topic) as producer:
        for row in statement.rows:
            if len(row) != len(names):
                raise SqlError(f"a row has {len(row)} values, and {stream.name} has {len(names)} columns")
            values = dict(zip(names, row, strict=True))
            producer.send({name: typed_value(name, values.get(name), kind) for name, kind in stream.columns.items()})
