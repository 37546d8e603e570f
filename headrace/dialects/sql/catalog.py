"""The catalog: the streams, tables and views that statements created. It outlives the process, as a file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sqlglot import exp

from headrace.dialects.sql.relations import NUMBER
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, CreateTable, parse_statements
from headrace.dialects.sql.tablereads import TablePart, stored_name
from headrace.dialects.sql.viewoutput import output_view
from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import make_folder
from headrace.local.querytable import QueryTable
from headrace.model.errors import other_format
from headrace.model.knowncolumns import nearest_name

Created = CreateStream | CreateTable | CreateQuery
"""A statement that creates."""

FORMAT: Final = 2
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,49}")


@dataclass(frozen=True)
class View:
    """A view: its statement, its columns with Spark's types, its key if it has one, and the pass that computes it.

    With a `shape` it is one of the queries of that shape, and has a `number` among them; without a number it is the
    shape itself, which stands for all of them.
    One that is paused has a pass of its own, which does not run. `combinations` say how columns of several rows become
    one (see `combining`), which needs the `hidden` columns of its table. With `alone`, a view's name, it is the shape
    as the pass of that view has it, which is the only query there.
    """

    statement: CreateQuery
    columns: dict[str, str]
    key: tuple[str, ...] | None
    computed_by: str
    shape: str | None = None
    number: int | None = None
    paused: bool = False
    hidden: dict[str, str] = field(default_factory=dict)
    combinations: dict[str, str] = field(default_factory=dict)
    alone: str | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.statement.name

    @property
    def part(self) -> TablePart | None:
        """The part that it is of another table: that of its shape, or one with hidden columns."""
        if self.shape is not None:
            return None if self.number is None else TablePart(self.shape, NUMBER, self.number)
        return TablePart(stored_name(self.name)) if self.hidden else None

    @property
    def stored(self) -> str:
        """The table that its rows are in."""
        return self.name if self.part is None else self.part.table

    def query(self, statement: CreateQuery, number: int) -> View:
        """Returns the view that is a query of this shape."""
        columns = {name: kind for name, kind in self.columns.items() if name != NUMBER}
        key = None if self.key is None else tuple(name for name in self.key if name != NUMBER)
        return replace(self, statement=statement, columns=columns, key=key, number=number)


def is_same(one: Created, other: Created) -> bool:
    """Tells whether two statements create the same, however they are written.

    >>> texts = ("CREATE STREAM hits (url text)", "create stream if not exists hits (\\n url string -- the page\\n)")
    >>> is_same(*parse_statements(";".join(texts)))
    True
    """
    return type(one) is type(other) and replace(one, text="", if_not_exists=False) == replace(
        other, text="", if_not_exists=False
    )


class Catalog:
    """Streams, tables and views by name. A change is in the file before anything else happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.streams: dict[str, CreateStream] = {}
        self.tables: dict[str, CreateTable] = {}
        self.views: dict[str, View] = {}
        self.transforms: dict[str, View] = {}  # which have no table
        self.unfinished: set[str] = set()  # names of tables that a statement is making or removing
        self.shapes: dict[str, View] = {}  # each with the statement of its first view
        self.alone: dict[str, View] = {}  # queries of shapes that have passes of their own, since they were paused
        self._queries: dict[tuple[str, str | None], QueryTable] = {}
        if path.exists():
            self._load(json.loads(read_private(path)))

    def stream(self, name: str) -> CreateStream:
        """Returns a stream; refuses a name that is none."""
        if name not in self.streams:
            raise self._unknown("stream", name, self.streams)
        return self.streams[name]

    def view(self, name: str) -> View:
        """Returns a view; refuses a name that is none."""
        if name not in self.views:
            raise self._unknown("view", name, self.views)
        return self.views[name]

    def definition(self, name: str) -> Created | None:
        """Returns the statement that created a stream, a table or a view; None if there is none of this name."""
        if (query := self.views.get(name) or self.transforms.get(name)) is not None:
            return query.statement
        return self.streams.get(name) or self.tables.get(name)

    def passes(self) -> dict[str, list[View]]:
        """Returns the passes that compute views and transforms, by name, with these; views of one shape are one."""
        found: dict[str, list[View]] = {}
        views = (view for view in self.views.values() if view.shape is None)
        for view in (*views, *self.transforms.values(), *self.shapes.values()):
            found.setdefault(view.computed_by, []).append(view)
        for name, view in self.alone.items():
            shape = self.shapes[str(view.shape)]
            own = replace(shape, computed_by=view.computed_by, paused=view.paused, alone=name)
            found[view.computed_by] = [own]
        return found

    def check_free(self, name: str) -> None:
        """Refuses a name that a stream, a table or a view has, or that no table should have."""
        if not _NAME.fullmatch(name) or name.lower().startswith(("headrace_", "sqlite_", "pg_")):
            raise SqlError(f"{name!r} is no name for a stream or a view; one has letters, digits and _, at most 50")
        kinds: dict[str, Mapping[str, object]] = {"stream": self.streams, "table": self.tables, "view": self.views}
        kinds["transform"] = self.transforms
        taken = next((kind for kind, names in kinds.items() if name in names), None)
        if taken is not None:
            raise SqlError(f"there is a {taken} {name!r} already; drop it first, or write IF NOT EXISTS")

    def add_stream(self, stream: CreateStream) -> None:
        """Adds a stream."""
        self.streams[stream.name] = stream
        self._save()

    def add_table(self, table: CreateTable) -> None:
        """Adds a table."""
        self.tables[table.name] = table
        self._save()

    def add_view(self, view: View) -> None:
        """Adds a view, whose table is there, or what has changed about it.

        Queries of a shape are in a file of their own, not in the catalog's.
        """
        self.views[view.name] = view
        if view.name in self.alone:
            self.set_alone(view)
        elif view.shape is None:
            self.unfinished.discard(view.name)
            self._save()

    def set_alone(self, view: View) -> None:
        """Gives a query of a shape a pass of its own, or notes what has changed about it."""
        self.views[view.name] = self.alone[view.name] = view
        self._save()

    def is_over(self, shape: str) -> bool:
        """Returns whether a shape has no queries any more, in its pass or in others."""
        alone = any(view.shape == shape for view in self.alone.values())
        return not alone and not self.query_table(shape).active(None)

    def add_transform(self, transform: View) -> None:
        """Adds a transform."""
        self.transforms[transform.name] = transform
        self._save()

    def drop_transform(self, name: str) -> View:
        """Removes a transform; what it appended stays."""
        if name not in self.transforms:
            raise self._unknown("transform", name, self.transforms)
        transform = self.transforms.pop(name)
        self._save()
        return transform

    def check_readable(self, query: CreateQuery) -> None:
        """Refuses a query over a sliding view, whose rows come from windows that others do not see."""
        if sliding := [name for name in self.tables_of(query) if name in self.views and _slides(self.views[name])]:
            raise SqlError(
                f"{min(sliding)} is a sliding view, which only a SELECT reads; write sw in this view instead"
            )

    def check_no_circle(self, transform: CreateQuery) -> None:
        """Refuses a transform whose rows would come back to it."""
        reached, new = set[str](), {str(transform.into)}
        while new:
            reached |= new
            others = (each.statement for each in self.transforms.values())
            new = {str(each.into) for each in others if self.sources_of(each) & reached} - reached
        if back := self.sources_of(transform) & reached:
            raise SqlError(f"the rows of {transform.name} would come back to it, by the stream {min(back)!r}")

    def add_shape(self, shape: View) -> None:
        """Adds a shape, whose table is there, and which has no queries yet."""
        self.remove_queries(shape.name)  # of a process that died before it did
        self.shapes[shape.name] = shape
        self.unfinished.discard(shape.name)
        self._save()

    def drop_shape(self, name: str) -> None:
        """Removes a shape, which no view has any more."""
        del self.shapes[name]
        self.begin(name)

    def remove_queries(self, shape: str) -> None:
        """Removes the table of queries of a shape that is no more; its pass must not read it any more."""
        table = self.query_table(shape)
        del self._queries[shape, None]
        for path in (table.path, table.lock):
            path.unlink(missing_ok=True)

    @property
    def queries(self) -> Path:
        """The directory of the tables of queries."""
        return self.path.parent.absolute() / "queries"

    def query_table(self, shape: str, alone: str | None = None) -> QueryTable:
        """Returns the queries of a shape; or that of a view that has a pass alone, under the same name elsewhere."""
        if (shape, alone) not in self._queries:
            folder = self.queries if alone is None else self.queries / f"of-{alone}"
            make_folder(self.queries)
            make_folder(folder)
            self._queries[shape, alone] = QueryTable(folder / shape)
        return self._queries[shape, alone]

    def remove_alone(self, view: str) -> None:
        """Removes the table of a view that had a pass alone; its pass must not read it any more."""
        shutil.rmtree(self.queries / f"of-{view}", ignore_errors=True)
        self._queries = {key: table for key, table in self._queries.items() if key[1] != view}

    def refresh(self) -> None:
        """Takes the views of shapes as they are now; another process may have added and dropped some."""
        for shape in self.shapes.values():
            table = self.query_table(shape.name)
            before = table.version
            table.refresh()
            if table.version != before:
                self._take(shape, {query.number: query.text for query in table.active(None)})

    def _take(self, shape: View, texts: Mapping[int, str]) -> None:
        of_shape = [view for view in self.views.values() if view.shape == shape.name]
        known = {view.number: view.name for view in of_shape if view.name not in self.alone}
        texts = {number: text for number, text in texts.items() if number not in self._numbers_alone(shape.name)}
        for number in known.keys() - texts.keys():
            del self.views[known[number]]
        for number in texts.keys() - known.keys():
            (statement,) = parse_statements(texts[number])
            assert isinstance(statement, CreateQuery)
            self.views[statement.name] = shape.query(statement, number)

    def _numbers_alone(self, shape: str) -> set[int | None]:
        return {view.number for view in self.alone.values() if view.shape == shape}

    def drop_stream(self, name: str) -> None:
        """Removes a stream; refused while views read it."""
        self.stream(name)
        if readers := self._readers(name):
            raise SqlError(f"the view {readers[0]!r} reads the stream {name!r}; drop the view first")
        if writers := [each.name for each in self.transforms.values() if each.statement.into == name]:
            raise SqlError(f"the transform {writers[0]!r} appends to the stream {name!r}; drop the transform first")
        del self.streams[name]
        self._save()

    def drop_table(self, name: str) -> None:
        """Removes a table, whose rows stay where they are; refused while views read it."""
        if name not in self.tables:
            raise self._unknown("table", name, self.tables)
        if readers := self._readers(name):
            raise SqlError(f"the view {readers[0]!r} reads the table {name!r}; drop the view first")
        del self.tables[name]
        self._save()

    def drop_view(self, name: str) -> View:
        """Removes a view; refused while others read it."""
        view = self.view(name)
        if readers := self._readers(name):
            raise SqlError(f"the view {readers[0]!r} reads the view {name!r}; drop that one first")
        del self.views[name]
        if view.shape is None:
            self.begin(name)
        elif self.alone.pop(name, None) is not None:
            self._save()
        return view

    def begin(self, table: str) -> None:
        """Notes that a table is being made or removed: if the process dies, it is of no view."""
        self.unfinished.add(table)
        self._save()

    def finish(self, table: str) -> None:
        """Notes that a table is gone."""
        self.unfinished.discard(table)
        self._save()

    def tables_of(self, statement: CreateQuery) -> set[str]:
        """Returns the streams, tables and views that a query names."""
        named = {output_view(table) or table.name for table in statement.query.find_all(exp.Table)}
        return named & {*self.streams, *self.tables, *self.views}

    def sources_of(self, statement: CreateQuery) -> set[str]:
        """Returns the streams and tables that a query reads, also through views."""
        found: set[str] = set()
        for name in self.tables_of(statement):
            found |= self.sources_of(self.views[name].statement) if name in self.views else {name}
        return found

    def _readers(self, name: str) -> list[str]:
        queries = (*self.views.values(), *self.transforms.values())
        return [each.name for each in queries if name in self.tables_of(each.statement)]

    def _unknown(self, kind: str, name: str, names: Iterable[str]) -> SqlError:
        near = nearest_name(name, names)
        hint = f"; there are {', '.join(names) or 'none'}" if near is None else f", did you mean {near!r}?"
        return SqlError(f"there is no {kind} {name!r}{hint}")

    def _save(self) -> None:
        stored = {
            "format": FORMAT,
            "streams": [stream.text.strip() for stream in self.streams.values()],
            "tables": [table.text.strip() for table in self.tables.values()],
            "views": [_entry(view) for view in self.views.values() if view.shape is None],
            "transforms": [_entry(transform) for transform in self.transforms.values()],
            "shapes": {name: _entry(shape) for name, shape in self.shapes.items()},
            "alone": [{**_entry(view), "shape": view.shape, "number": view.number} for view in self.alone.values()],
            "unfinished": sorted(self.unfinished),
        }
        replace_file(self.path, json.dumps(stored, indent=1).encode())

    def _load(self, stored: dict[str, Any]) -> None:
        if stored["format"] != FORMAT:
            raise SqlError(other_format(f"the catalog {self.path}", stored["format"], FORMAT, "use another directory"))
        self.unfinished = set(stored.get("unfinished", ()))
        for text in stored["streams"]:
            (stream,) = parse_statements(text)
            assert isinstance(stream, CreateStream)
            self.streams[stream.name] = stream
        for text in stored.get("tables", []):  # there were none at first
            (table,) = parse_statements(text)
            assert isinstance(table, CreateTable)
            self.tables[table.name] = table
        for entry in stored["views"]:
            view = _stored_view(entry)
            self.views[view.name] = view
        for entry in stored.get("transforms", []):
            transform = _stored_view(entry)
            self.transforms[transform.name] = transform
        for name, entry in stored.get("shapes", {}).items():
            shape = _stored_view(entry)
            self.shapes[name] = replace(shape, statement=replace(shape.statement, name=name), shape=name)
        for entry in stored.get("alone", []):
            view = _stored_view(entry)
            self.views[view.name] = self.alone[view.name] = view
        self.refresh()


def _slides(view: View) -> bool:
    return "sw" in view.statement.options


def _entry(view: View) -> dict[str, Any]:
    return {
        "text": view.statement.text.strip(),
        "columns": view.columns,
        "key": view.key,
        "computed_by": view.computed_by,
        "paused": view.paused,
        "hidden": view.hidden,
        "combinations": view.combinations,
    }


def _stored_view(entry: dict[str, Any]) -> View:
    (statement,) = parse_statements(entry.pop("text"))
    assert isinstance(statement, CreateQuery)
    key = entry.pop("key")
    return View(statement, key=None if key is None else tuple(key), **entry)
