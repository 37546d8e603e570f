"""The output of a view as a stream, `output_of(view)`: a row for each change of one of its rows.

A row has the key of the view's row, `op` ('insert', 'update' or 'delete'), and of every other column the value before
(`old_n`) and after (`new_n`), null where there is no row; of counts and sums also the difference (`delta_n`). A change
is what became of a row in a micro-batch: what came and went in the same is none.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from headrace.dialects.sql.relations import Relation, column_named, spelled, sql_text
from headrace.dialects.sql.steps import Steps
from headrace.model.agg import Aggregation, count
from headrace.model.algebra.changing import AddedFn, RemovedFn
from headrace.model.columns import GroupBy, Select, Where
from headrace.model.keyed import WindowInto
from headrace.model.triggers import Always
from headrace.model.windows import GlobalWindows

OUTPUT_OF: Final = "output_of"
OPERATION: Final = "op"
_ROWS: Final = "_rows"
_ADDITIVE: Final = ("count", "count_if", "sum")


def output_view(source: exp.Expr) -> str | None:
    """Returns the view whose output a table in FROM is; None if it is something else."""
    call = source.this if isinstance(source, exp.Table) else None
    if not isinstance(call, exp.Anonymous) or call.name.lower() != OUTPUT_OF or len(call.expressions) != 1:
        return None
    (view,) = call.expressions
    return view.name if isinstance(view, exp.Column) or (isinstance(view, exp.Literal) and view.is_string) else None


def output_relation(steps: Steps, query: exp.Query, view: Relation, place: exp.Expr) -> Relation:
    """Returns the changes of a view's rows, by its query and a plan in which they are taken back when they change."""
    if view.key is None:
        raise steps.error(
            place,
            f"{OUTPUT_OF} is of a view of groups, whose columns of GROUP BY are all in its SELECT, which say what "
            "has changed; rows that never change are in the stream itself",
        )
    rows = steps.materialized(view)
    keys, values = list(view.key), [name for name in rows.columns if name not in view.key]
    columns = [OPERATION, *(f"{part}_{name}" for part in ("old", "new", "delta") for name in values)]
    if taken := [name for name in keys if spelled(name, columns) is not None]:
        raise steps.error(place, f"the view has a column {taken[0]!r}, as its output has; rename it there")
    apply = steps.shared.apply
    changes = WindowInto(GlobalWindows(), trigger=Always(), accumulation="discarding")
    collection = apply(changes, f"windows {changes.windowing!r}", rows.collection)
    aggregations = {_ROWS: count()}
    aggregations |= {f"old_{name}": Aggregation(RemovedFn(), name) for name in values}
    aggregations |= {f"new_{name}": Aggregation(AddedFn(), name) for name in values}
    signature = f"changes of {', '.join(keys)}: {', '.join(values)}"
    collection = apply(GroupBy(*keys).aggregate(**aggregations), signature, collection)
    same = [f"{_text(f'old_{name}')} <=> {_text(f'new_{name}')}" for name in values]
    condition = " OR ".join([f"{_ROWS} <> 0", *(f"NOT ({each})" for each in same)])
    collection = apply(Where(condition), f"where {condition}", collection)
    computed = {name: _text(name) for name in keys}
    computed[OPERATION] = f"CASE {_ROWS} WHEN 1 THEN 'insert' WHEN 0 THEN 'update' ELSE 'delete' END"
    for part in ("old", "new"):
        computed |= {f"{part}_{name}": _text(f"{part}_{name}") for name in values}
    computed |= {f"delta_{name}": _difference(name) for name in values if name in _additive(query)}
    signature = "select " + ", ".join(f"{text} AS {name}" for name, text in computed.items())
    collection = apply(Select(**computed), signature, collection)
    stored = tuple(computed)
    return Relation(collection, {name: column_named(name) for name in stored}, stored)


def _text(name: str) -> str:
    return sql_text(column_named(name))


def _additive(query: exp.Query) -> set[str]:
    """Returns the columns of a query that are counts or sums, of which the difference is that of the rows between."""
    counted = [each for each in query.selects if each.alias and isinstance(each.unalias(), exp.Anonymous)]
    return {
        each.alias for each in counted if each.unalias().name.lower() in _ADDITIVE and each.find(exp.Distinct) is None
    }


def _difference(name: str) -> str:
    return f"coalesce({_text(f'new_{name}')}, 0) - coalesce({_text(f'old_{name}')}, 0)"
