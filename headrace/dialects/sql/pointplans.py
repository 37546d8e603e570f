"""Plans of points: a statement that a database answers by itself is parsed once for all constants it comes with."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.pointreads import AMBIGUOUS, point_read
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import Select, parse_statements
from headrace.dialects.sql.tablereads import as_cells
from headrace.dialects.sql.viewreads import view_schema

_CONSTANT: Final = re.compile(r"'([^']*)'|(?<![\w.])([0-9]{1,18})(?![\w.])")
_MARK: Final = "\ue000"  # a character for private use, by which a text of ours is known
_NUMBER: Final = 10**17
_MOST_PLANS: Final = 1_000
_SHORT: Final = 64 << 10  # characters of a row that is read while others wait
_LONGEST: Final = 2_000  # characters of a statement that is worth a plan


@dataclass(frozen=True)
class PointPlan:
    """A plan: the columns that are read of a view, their names in the result, and which constants are for what.

    `equal` has for each column the place of its constant among those of the text, and its sign.
    """

    view: str
    schema: pa.Schema
    names: list[str]
    equal: dict[str, tuple[int, int]]
    limit: int | None
    plain: bool = False  # whether the database has values as the result has them
    quick: str | None = None  # a statement of SQLite's for the one row there can be, unless it is long


class PointPlans:
    """Answers points of the views of a catalog. Any number of threads may use it at once."""

    def __init__(self, tables: ResultTables) -> None:
        self._tables, self._lock = tables, threading.Lock()
        self._plans: tuple[Catalog | None, dict[str, PointPlan | None]] = (None, {})

    def quick_answer(self, catalog: Catalog, text: str) -> tuple[list[str], list[Sequence[Any]]] | None:
        """Returns a row by its whole key from a local file, which takes less time than to pass it to a thread.

        None if the text asks for something else or is not planned yet, if the row is not there or is long, or if the
        file is being written: whoever answers then may take longer. To be called by one thread.
        """
        found = self._understood(catalog, text, known=True)
        if found is None:
            return None
        plan, equal, _ = found
        if plan.quick is None:
            return None
        row = self._tables.quick_row(plan.quick, tuple(equal.values()))
        return None if row is None else (plan.names, [row if plan.plain else as_cells(plan.schema, row)])

    def answer(self, catalog: Catalog, text: str, most: int) -> tuple[list[str], list[list[Any]]] | None:
        """Returns the columns and rows of a point, at most so many rows; None if a text asks for something else."""
        found = self._understood(catalog, text)
        if found is None:
            return None
        plan, equal, constants = found
        limit = most if plan.limit is None else min(int(constants[plan.limit]), most)
        return plan.names, self._tables.read_cells(plan.view, plan.schema, equal, limit)

    def _understood(
        self, catalog: Catalog, text: str, *, known: bool = False
    ) -> tuple[PointPlan, dict[str, Any], list[str | int]] | None:
        """Returns the plan of a text, with `known` only one there is, the values of its columns, and constants."""
        if len(text) > _LONGEST or ";" in text or _MARK in text or AMBIGUOUS.search(text):
            return None
        constants: list[str | int] = []

        def note(found: re.Match[str]) -> str:
            constants.append(int(found[2]) if found[1] is None else found[1])
            return "'?'" if found[1] is not None else "0"

        form = _CONSTANT.sub(note, text)
        plan = self._known(catalog).get(form) if known else self._plan(catalog, form, text)
        if plan is None:
            return None
        equal = {
            column: sign * value if isinstance(value := constants[place], int) else value
            for column, (place, sign) in plan.equal.items()
        }
        return plan, equal, constants

    def _plan(self, catalog: Catalog, form: str, text: str) -> PointPlan | None:
        plans = self._known(catalog)
        if form not in plans:
            plans[form] = _planned(catalog, text, self._tables)
        return plans[form]

    def _known(self, catalog: Catalog) -> dict[str, PointPlan | None]:
        """Returns the plans there are for a catalog, by the form of the text."""
        with self._lock:
            if self._plans[0] is not catalog or len(self._plans[1]) > _MOST_PLANS:
                self._plans = catalog, {}
            return self._plans[1]


def _planned(catalog: Catalog, text: str, tables: ResultTables) -> PointPlan | None:
    """Plans a statement: constants are replaced by marks, and looked for in what the database is asked."""
    count = 0

    def mark(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"'{_MARK}{count - 1}'" if found[1] is not None else str(_NUMBER + count - 1)

    try:
        (statement,) = parse_statements(_CONSTANT.sub(mark, text))
        point = point_read(statement, _schema_of(catalog)) if isinstance(statement, Select) else None
    except (SqlError, ValueError, RecursionError):  # whoever parses the text itself says better what is wrong with it
        return None
    if point is None or point.columns is None:
        return None
    equal = {column: _place(value) for column, value in point.equal.items()}
    limit = None if point.limit is None else point.limit - _NUMBER
    if len(equal) + (limit is not None) != count:
        return None
    schema = view_schema(catalog.view(point.view))
    fields = pa.schema([schema.field(column) for column, _ in point.columns])
    view = catalog.view(point.view)
    by_key = view.shape is None and view.key is not None and set(equal) == set(view.key) and limit is None
    quick = tables.quick_text(point.view, fields, list(equal), _SHORT) if by_key else None
    plain = all(map(_is_plain, fields.types))
    return PointPlan(point.view, fields, [name for _, name in point.columns], equal, limit, plain, quick)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind))


def _schema_of(catalog: Catalog) -> Any:
    return lambda name: view_schema(catalog.view(name))


def _place(value: Any) -> tuple[int, int]:
    """Returns the place of a mark among the constants, and its sign."""
    if isinstance(value, str):
        return int(value.removeprefix(_MARK)), 1
    return abs(value) - _NUMBER, 1 if value > 0 else -1
