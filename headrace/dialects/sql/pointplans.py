"""Plans of points: a statement that a database answers by itself is parsed once for all constants it comes with."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.pointreads import AMBIGUOUS, point_read
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import Select, parse_statements
from headrace.dialects.sql.viewreads import view_schema

_CONSTANT: Final = re.compile(r"'([^']*)'|(?<![\w.])([0-9]{1,18})(?![\w.])")
_MARK: Final = "\ue000"  # a character for private use, by which a text of ours is known
_NUMBER: Final = 10**17
_MOST_PLANS: Final = 1_000
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


class PointPlans:
    """Answers points of the views of a catalog. Any number of threads may use it at once."""

    def __init__(self, tables: ResultTables) -> None:
        self._tables, self._lock = tables, threading.Lock()
        self._plans: tuple[Catalog | None, dict[str, PointPlan | None]] = (None, {})

    def answer(self, catalog: Catalog, text: str, most: int) -> tuple[list[str], list[list[Any]]] | None:
        """Returns the columns and rows of a point, at most so many rows; None if a text asks for something else."""
        if len(text) > _LONGEST or ";" in text or _MARK in text or AMBIGUOUS.search(text):
            return None
        constants: list[str | int] = []

        def note(found: re.Match[str]) -> str:
            constants.append(int(found[2]) if found[1] is None else found[1])
            return "'?'" if found[1] is not None else "0"

        plan = self._plan(catalog, _CONSTANT.sub(note, text), text)
        if plan is None:
            return None
        equal = {
            column: sign * value if isinstance(value := constants[place], int) else value
            for column, (place, sign) in plan.equal.items()
        }
        limit = most if plan.limit is None else min(int(constants[plan.limit]), most)
        return plan.names, self._tables.read_cells(plan.view, plan.schema, equal, limit)

    def _plan(self, catalog: Catalog, form: str, text: str) -> PointPlan | None:
        with self._lock:
            if self._plans[0] is not catalog or len(self._plans[1]) > _MOST_PLANS:
                self._plans = catalog, {}
            plans = self._plans[1]
        if form not in plans:
            plans[form] = _planned(catalog, text)
        return plans[form]


def _planned(catalog: Catalog, text: str) -> PointPlan | None:
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
    return PointPlan(point.view, fields, [name for _, name in point.columns], equal, limit)


def _schema_of(catalog: Catalog) -> Any:
    return lambda name: view_schema(catalog.view(name))


def _place(value: Any) -> tuple[int, int]:
    """Returns the place of a mark among the constants, and its sign."""
    if isinstance(value, str):
        return int(value.removeprefix(_MARK)), 1
    return abs(value) - _NUMBER, 1 if value > 0 else -1
