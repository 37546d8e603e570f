"""Codes: small numbers in place of values, by which rows are grouped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.columns.arrays import stable_order
from headrace.model.times import Int64Array


@dataclass(frozen=True)
class Codes:
    """The code of each row: a number below `count`.

    >>> city = Codes.of_column(pa.array(["Bonn", "Rome", "Bonn"]))
    >>> year = Codes.of_steps(np.array([1990, 1990, 2020]), 10)
    >>> city.numbers.tolist(), year.numbers.tolist()
    ([0, 1, 0], [0, 0, 3])
    >>> both = city.with_codes(year)
    >>> both.numbers.tolist(), both.first_rows().tolist()
    ([0, 1, 2], [0, 1, 2])
    """

    numbers: Int64Array
    count: int

    @staticmethod
    def of_column(column: pa.Array) -> Codes:
        """Makes codes of a column, in order of the values' first rows; a null is a value, too."""
        if pa.types.is_signed_integer(column.type) and len(column) and not column.null_count:
            numbers = np.asarray(column)
            low, high = int(numbers.min()), int(numbers.max())
            if high - low < _room(len(numbers)):
                return _in_order(numbers.astype(np.int64) - low, high - low + 1)
        encoded = column.dictionary_encode(null_encoding="encode")
        return Codes(np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary))

    @staticmethod
    def of_columns(columns: Iterable[pa.Array], rows: int) -> Codes:
        """Makes codes of several columns together, in order of first rows; without columns all rows are alike."""
        codes = Codes(np.zeros(rows, np.int64), min(rows, 1))
        for column in columns:
            more = Codes.of_column(column)
            codes = more if codes.count <= 1 else codes.with_codes(more) if more.count > 1 else codes
        return codes

    @staticmethod
    def of_steps(numbers: Int64Array, step: int, offset: int = 0) -> Codes:
        """Makes codes of the steps that numbers lie in, which begin at `offset`, in their order.

        Some codes may be of no row.
        """
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -step)
        low -= (low - offset) % step
        steps = (high - low) // step + 1
        if steps > _room(len(numbers)):
            return Codes.of_column(pa.array((numbers - low) // step))
        return Codes(np.zeros(len(numbers), np.int64) if steps == 1 else (numbers - low) // step, steps)

    def with_codes(self, other: Codes) -> Codes:
        """Makes codes of both together, in order of first rows."""
        room = self.count * other.count
        both = self.numbers * other.count + other.numbers
        return _in_order(both, room) if room <= _room(len(both)) else Codes.of_column(pa.array(both))

    def take(self, positions: Int64Array) -> Codes:
        return Codes(self.numbers[positions], self.count)

    def first_rows(self) -> Int64Array:
        """Returns the first row of each code; every code must have one."""
        firsts = np.empty(self.count, np.int64)
        firsts[self.numbers[::-1]] = np.arange(len(self.numbers))[::-1]
        return firsts


def _in_order(numbers: Int64Array, room: int) -> Codes:
    """Makes codes of numbers from 0 up to `room`, in order of their first rows."""
    rows, kind = len(numbers), np.int32 if max(room, len(numbers)) < 2**31 else np.int64  # half as much to go through
    first: npt.NDArray[Any] = np.full(room, rows, kind)
    first[numbers[::-1]] = np.arange(rows, dtype=kind)[::-1]
    there = np.flatnonzero(first < rows)
    there = there[stable_order(first[there])]
    code = np.empty(room, kind)
    code[there] = np.arange(len(there), dtype=kind)
    return Codes(code[numbers].astype(np.int64), len(there))


def _room(rows: int) -> int:
    """Returns up to how many codes an array of all of them is cheaper than hashing."""
    return 4 * rows + 1024
