"""Views of one shape: rows of a table of queries, which a pass reads in every micro-batch, so that it need not stop.

The results of all are in one table; each view is a view of the database, of the rows with its number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.shapes import Shape
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.local.querytable import QueryTable, StoredQuery

_ENDED: Final = 64  # queries that have ended before their table is written anew


class SharedViews:
    """The views of all shapes of a catalog. `passes` is the directory of the checkpoints of passes.

    When it is made no pass runs yet, so that what is left of queries that have ended can be removed.
    """

    def __init__(self, catalog: Catalog, tables: ResultTables, passes: Path) -> None:
        self._catalog, self._tables, self._passes = catalog, tables, passes
        self._leftover: dict[str, list[StoredQuery]] = {}  # by shape, those that a micro-batch may still write rows of
        there = tables.views() if catalog.shapes else set()
        # The process may have died when a query was stored, and its view was not made yet.
        self._create_views(*(view for name, view in catalog.views.items() if view.shape and name not in there))
        self._clear_alone()
        for name in list(catalog.shapes):
            self._clear(name, there)

    def _clear(self, name: str, there: set[str]) -> None:
        """Removes what is left of queries of a shape that have ended."""
        catalog, table = self._catalog, self._catalog.query_table(name)
        alone = {view.number for view in catalog.alone.values() if view.shape == name}
        for number in alone & {query.number for query in table.active(None)}:
            assert number is not None  # the process died before it had left the others
            table.end(number, lambda: 1 + self._last_batch(catalog.shapes[name], "commits"))
        for query in _ended(table):
            (statement,) = parse_statements(query.text)
            assert isinstance(statement, CreateQuery)
            if statement.name in there - catalog.views.keys():  # the process died before it was gone
                self._tables.drop_view(statement.name)
        if catalog.is_over(name):  # the process died before the first was stored, or after the last
            catalog.drop_shape(name)
            catalog.remove_queries(name)
        elif ended := _ended(table):
            self._tables.delete_queries(name, [query.number for query in ended if query.number not in alone])
            table.compact()

    def _clear_alone(self) -> None:
        """Removes what is left of queries that had passes alone."""
        for folder in self._catalog.queries.glob("of-*"):
            name = folder.name.removeprefix("of-")
            if name in self._catalog.alone:
                continue
            for path in [each for each in folder.iterdir() if each.suffix != ".lock"]:
                table = self._catalog.query_table(path.name, name)
                table.refresh()
                numbers = list(table.queries)
                if name not in self._catalog.views and path.name in self._catalog.shapes:  # it was dropped
                    if name in self._tables.views():
                        self._tables.drop_view(name)
                    self._tables.delete_queries(path.name, numbers)
            self._catalog.remove_alone(name)

    def separate(self, view: View) -> None:
        """Gives a view a table of its own, for a pass of its own. That of the others must be halted."""
        assert view.shape is not None and view.number is not None
        table, stored = self._catalog.query_table(view.shape), self._catalog.shapes[view.shape]
        self._catalog.query_table(view.shape, view.name).take(table.queries[view.number])
        self._catalog.set_alone(view)
        # A batch that was logged and has not begun is done by both, so it ends with the last that is committed.
        table.end(view.number, lambda: 1 + self._last_batch(stored, "commits"))

    def remove_alone(self, view: View) -> bool:
        """Removes a view that had a pass alone, which is over; returns whether it was the last of its shape."""
        assert view.shape is not None and view.number is not None
        self._tables.drop_view(view.name)
        self._tables.delete_queries(view.shape, [view.number])
        self._catalog.remove_alone(view.name)
        if not self._catalog.is_over(view.shape):
            return False
        self._catalog.drop_shape(view.shape)
        return True

    def add(self, statement: CreateQuery, shape: Shape) -> View:
        """Adds a view of a shape that the catalog has; it begins with the next micro-batch."""
        stored, table = self._catalog.shapes[shape.name], self._catalog.query_table(shape.name)
        number = table.add(shape.constants, statement.text.strip(), lambda: self._next_batch(stored))
        view = stored.query(statement, number)
        try:
            self._create_views(view)
        except BaseException:
            table.end(number, lambda: self._next_batch(stored))
            raise
        self._catalog.add_view(view)
        return view

    def remove(self, view: View) -> bool:
        """Removes a view, which is out of the catalog; returns whether it was the last of its shape, which goes, too.

        A micro-batch that is under way may still write rows of it, which nobody sees; they go with the next removal, or
        when the directory is opened again.
        """
        assert view.shape is not None and view.number is not None
        table, stored = self._catalog.query_table(view.shape), self._catalog.shapes[view.shape]
        table.end(view.number, lambda: self._next_batch(stored))
        self._tables.drop_view(view.name)
        if not self._catalog.is_over(view.shape):
            ended = [*self._leftover.get(view.shape, ()), table.queries[view.number]]
            done = self._last_batch(stored, "commits")
            self._leftover[view.shape] = [query for query in ended if query.end is not None and query.end > done + 1]
            self._tables.delete_queries(view.shape, [query.number for query in ended])
            if len(table.queries) > 2 * len(table.active(None)) + _ENDED:
                table.compact(done)
            return False
        self._leftover.pop(view.shape, None)
        self._catalog.drop_shape(view.shape)
        return True

    def _create_views(self, *views: View) -> None:
        self._tables.create_views({view.name: ([*view.columns], view.part) for view in views if view.part is not None})

    def describe(self, shape: Shape) -> str:
        """Says how many views a query would share its shape with, and in what they differ."""
        count = sum(view.shape == shape.name for view in self._catalog.views.values())
        others = "no other view yet" if not count else "1 other view" if count == 1 else f"{count} other views"
        differing = " and ".join(dict.fromkeys(each.column for each in shape.parameters))
        return f"one step matches rows with all queries of this shape, which differ in {differing}; it has {others}"

    def _next_batch(self, shape: View) -> int:
        """Returns the number of the first micro-batch that has not begun: Spark logs the offsets of those that have."""
        return 1 + self._last_batch(shape, "offsets")

    def _last_batch(self, shape: View, log: str) -> int:
        """Returns the number of the last micro-batch in a log of a shape's pass; -1 if there is none."""
        entries = (self._passes / shape.computed_by / "spark" / log).glob("*")
        return max((int(entry.name) for entry in entries if entry.name.isdecimal()), default=-1)


def _ended(table: QueryTable) -> list[StoredQuery]:
    return [query for query in table.queries.values() if query.end is not None]
