"""The elements that Collect gathered: as a sequence, as a table of Arrow, pandas or polars, and in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.model.errors import PipelineError
from headrace.model.htmltables import html_table, html_text
from headrace.model.panes import OP, PANE, TIMING, WINDOW_BOUNDS
from headrace.model.schema import common_type, schema_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from headrace.model.sinks import WindowedValue

SHOWN: Final = 10
"""How many elements a notebook or a prompt shows."""


@dataclass(eq=False)
class Collected(Sequence[Any]):
    """The elements that Collect gathered, as a sequence; `windowed` has their times and windows, too.

    Of a batch it has the elements when the pipeline has run; of a stream, those of the micro-batches so far. A batch
    that runs again after a crash replaces its elements. `columns` are those of the elements, if they have any; `added`
    are those of windows and panes that a table of them has; in count windows, bounds are `counted` and no times.
    """

    label: str
    gathered: list[WindowedValue] | None = None
    stream: str | None = None
    batches: dict[int, list[WindowedValue]] = field(default_factory=dict)
    columns: pa.Schema | None = None
    added: Collection[str] = ()
    counted: bool = False

    def begin(self, stream: str, columns: pa.Schema | None = None) -> None:
        """Starts a stream; one that continues keeps its elements so far."""
        self.columns = columns
        if self.stream != stream:
            self.stream, self.batches, self.gathered = stream, {}, []

    def take(self, batch_id: int, elements: list[WindowedValue]) -> None:
        """Adds the elements of a batch of the stream, or replaces them."""
        new = batch_id not in self.batches
        self.batches[batch_id] = elements
        if new and self.gathered is not None:
            self.gathered += elements
        else:
            self.gathered = [element for batch in sorted(self.batches) for element in self.batches[batch]]

    @property
    def windowed(self) -> list[WindowedValue]:
        if self.gathered is None:
            raise RuntimeError(f"{self.label!r} has no elements yet: the pipeline has not run to its end; run it first")
        return self.gathered

    def __getitem__(self, at: Any) -> Any:
        return [element.value for element in self.windowed][at]

    def __iter__(self) -> Iterator[Any]:
        return (element.value for element in self.windowed)

    def __len__(self) -> int:
        return len(self.windowed)

    def to_arrow(self, *, window: bool | None = None) -> pa.Table:
        """Returns the elements as an Arrow table: their columns or, of Python objects, what their values say.

        As in files, elements whose windows are not global have the columns `window_start` and `window_end` and, if they
        were grouped, `pane` and `timing`; `window=False` leaves these out, and `window=True` has the pane in the global
        window, too. If there are retractions, the column `op` is "retract" in them and "insert" in other elements.

        >>> import headrace as hr
        >>> with hr.Pipeline() as p:
        ...     pairs = p | hr.Create([("a", 1)]) | hr.Select(word="_1", n="_2") | hr.Collect()
        >>> pairs.to_arrow().to_pylist()
        [{'word': 'a', 'n': 1}]
        """
        table = self._own_columns()
        for name, column in self._added_columns(window).items():
            if name not in table.column_names:
                table = table.append_column(name, column)
            elif name == OP:
                raise PipelineError(
                    f"{self.label!r}: elements have a column {OP!r}, which marks retractions in tables; rename it with "
                    "Select"
                )
        return table

    def _added_columns(self, window: bool | None) -> dict[str, pa.Array]:
        elements = self.windowed
        columns: dict[str, pa.Array] = {}
        if window or (window is None and WINDOW_BOUNDS[0] in self.added):
            kind = pa.int64() if self.counted else pa.timestamp("us", tz="UTC")
            columns[WINDOW_BOUNDS[0]] = pa.array([element.window.start for element in elements], kind)
            columns[WINDOW_BOUNDS[1]] = pa.array([element.window.end for element in elements], kind)
            columns[PANE] = pa.array([element.pane.index for element in elements], pa.int64())
            columns[TIMING] = pa.array([element.pane.timing for element in elements], pa.string())
        columns[OP] = pa.array(["retract" if element.retraction else "insert" for element in elements], pa.string())
        return {name: column for name, column in columns.items() if name in self.added}

    def _own_columns(self) -> pa.Table:
        elements = list(self)
        try:
            if self.columns is not None:
                values = [_parts(element) for element in elements]
                arrays = [pa.array([row[at] for row in values], kind) for at, kind in enumerate(self.columns.types)]
                return pa.table(arrays, schema=self.columns)
            if (schema := schema_of(common_type(elements))) is not None:
                return pa.table(schema.to_columns(elements), names=list(schema.names))
            return pa.table(_inferred(elements))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PipelineError(
                f"{self.label!r}: its elements are no rows of a table, because types differ or have no columns: "
                f"{str(error).splitlines()[0]}; make rows of them, e.g. with Map(f).with_output_types(tuple[str, int])"
            ) from None

    def to_pandas(self, *, window: bool | None = None) -> pd.DataFrame:
        """Returns the elements as a DataFrame of pandas, with the columns of `to_arrow`.

        Ints and booleans with nulls are in the nullable types of pandas.

        >>> import headrace as hr
        >>> with hr.Pipeline() as p:
        ...     pairs = p | hr.Create([("a", 1)]) | hr.Select(word="_1", n="_2") | hr.Collect()
        >>> print(pairs.to_pandas())
          word  n
        0    a  1
        """
        import pandas as pd

        table = self.to_arrow(window=window)
        exact = {
            name: _NULLABLE.get(str(column.type))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        frame = table.to_pandas()
        for name, kind in exact.items():  # as floats, large ints would be other numbers
            if kind is not None and table.column(name).null_count:
                frame[name] = pd.array(table.column(name).to_pylist(), dtype=kind)
        return frame

    def to_polars(self, *, window: bool | None = None) -> pl.DataFrame:
        """Returns the elements as a DataFrame of polars, which must be installed, with the columns of `to_arrow`.

        >>> import headrace as hr
        >>> with hr.Pipeline() as p:
        ...     pairs = p | hr.Create([("a", 1)]) | hr.Select(word="_1", n="_2") | hr.Collect()
        >>> pairs.to_polars().rows()
        [('a', 1)]
        """
        table = self.to_arrow(window=window)
        try:
            import polars as pl
        except ImportError:
            raise PipelineError("to_polars needs polars, which is not installed: pip install polars") from None
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def __repr__(self) -> str:
        if self.gathered is None:
            return f"<{self.label}: not run yet>"
        shown = ", ".join(repr(element.value) for element in self.gathered[:SHOWN])
        return f"[{shown}{', ' + self._rest() if self._rest() else ''}]"

    def _repr_html_(self) -> str:
        """Returns the first elements as a table, with the number of the rest."""
        if self.gathered is None:
            return html_text(repr(self))
        names, rows = _cells([element.value for element in self.gathered[:SHOWN]], self.columns)
        signs = ["-" if element.retraction else "+" for element in self.gathered[:SHOWN]]
        if any(element.retraction for element in self.gathered):
            names, rows = ["", *names], [[sign, *row] for sign, row in zip(signs, rows, strict=True)]
        return html_table(names, rows, self._rest() or ("" if self.gathered else "no elements"))

    def _rest(self) -> str:
        rest = len(self.windowed) - SHOWN
        return f"... and {rest:,} more" if rest > 0 else ""


_NULLABLE: Final = {
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    "bool": "boolean",
}
"""The types of pandas that have nulls, by the Arrow types whose own ones in pandas have none."""


def _parts(element: Any) -> Sequence[Any]:
    """Returns the parts of an element, one for each of its columns."""
    if dataclasses.is_dataclass(element):
        return [getattr(element, each.name) for each in dataclasses.fields(element)]
    return element if isinstance(element, tuple) else (element,)


def _names(element: Any) -> Sequence[str]:
    """Returns the names of an element's parts."""
    if dataclasses.is_dataclass(element):
        return [each.name for each in dataclasses.fields(element)]
    if isinstance(element, tuple):
        return getattr(element, "_fields", None) or [f"_{at + 1}" for at in range(len(element))]
    return ["value"]


def _inferred(elements: Sequence[Any]) -> dict[str, pa.Array]:
    """Returns columns of Python objects by their values: of dicts by their keys, of tuples by their parts."""
    if elements and all(isinstance(element, dict) for element in elements):
        keys = dict.fromkeys(key for element in elements for key in element)
        if odd := [key for key in keys if not isinstance(key, str)]:
            raise TypeError(f"a dict has the key {odd[0]!r}, which is no name of a column")
        return {key: pa.array([element.get(key) for element in elements]) for key in keys}
    names = {tuple(_names(element)) for element in elements}
    if len(names) > 1:
        return {"value": pa.array(elements)}
    values = [_parts(element) for element in elements]
    return {name: pa.array([row[at] for row in values]) for each in names for at, name in enumerate(each)}


def _cells(elements: Sequence[Any], columns: pa.Schema | None) -> tuple[list[str], list[list[str]]]:
    """Returns names and cells of a table that shows elements of any kind."""
    if columns is not None:
        return columns.names, [list(map(_cell, _parts(element))) for element in elements]
    if elements and all(isinstance(element, dict) for element in elements):
        keys = dict.fromkeys(key for element in elements for key in element)
        return list(map(str, keys)), [
            [_cell(element[key]) if key in element else "" for key in keys] for element in elements
        ]
    if len(names := {tuple(_names(element)) for element in elements}) == 1:
        return list(names.pop()), [list(map(_cell, _parts(element))) for element in elements]
    return ["value"], [[_cell(element)] for element in elements]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else repr(value) if not hasattr(value, "isoformat") else value.isoformat()
