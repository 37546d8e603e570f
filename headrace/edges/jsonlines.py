"""Reads JSON lines as columns of stated types, where the answer is sure to be the one that Spark's parser gives.

Lines that Spark's parser might read in another way, or would call bad, are given as they stand, for it to judge.
Arrow's parser takes a piece of a file at once and refuses it as a whole; what it refuses is divided until a few lines
are left over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types

from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.times import SECOND

TEXT: Final = "__text"
"""The column of lines that were not read, as bytes; null in rows that were."""

INSTANT: Final = pa.timestamp("us", "UTC")
_PLAIN: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    types.is_boolean,
    types.is_signed_integer,
    types.is_float64,
    types.is_string,
)
_PIECE: Final = 256 << 10  # bytes that are parsed at once: few enough to stay in the processor's cache
_PIECES: Final = 16  # of a batch that is given
_REFUSALS: Final = 8  # of a piece and its parts, after which no part is divided
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\n\x0b\f\r"
_ROW: Final = re.compile(r" in row (\d+)$")
_INFINITY: Final = re.compile(rb"[:,[]\s*-?I")
_OPEN, _CLOSE, _LINE_END, _I = (np.uint8(ord(each)) for each in "{}\nI")
# Spark's parser, Jackson, takes numbers of up to 1,000 characters, names of up to 50,000 and 1,000 levels.
_LONGEST_NUMBER: Final = 1000
_LONGEST_NAME: Final = 50_000
_SAMPLED: Final = 300  # of this many bytes, one is looked at: a long number shows in three neighbours
_OF_NUMBER: Final = np.zeros(256, bool)
_OF_NUMBER[list(b"+-.0123456789Ee")] = True
_OF_LEVEL: Final = np.zeros(256, bool)
_OF_LEVEL[list(b"[{")] = True


def is_plain(kind: pa.DataType) -> bool:
    """Tells whether columns of this type can be read.

    >>> is_plain(pa.int64()), is_plain(INSTANT), is_plain(pa.list_(pa.int64()))
    (True, True, False)
    """
    return kind == INSTANT or any(each(kind) for each in _PLAIN)


def read_lines(
    path: str, columns: pa.Schema, event_time: str | None = None, *, share: int = 0, shares: int = 1, length: int = -1
) -> Iterator[pa.RecordBatch]:
    """Yields the lines of a file in batches of these columns and TEXT; of several shares of its `length`, one.

    Lines without a time in the column `event_time`, if it is given, are not read either. A line is in the share in
    which it begins. Lines of nothing but white space are left out.

    >>> import tempfile
    >>> with open(path := tempfile.mktemp(), "wb") as file:
    ...     _ = file.write(b'{"n": 1, "x": 2}\\n\\n{"n": "1"}')
    >>> [batch.to_pylist() for batch in read_lines(path, pa.schema([("n", pa.int64())]))]
    [[{'n': 1, '__text': None}, {'n': None, '__text': b'{"n": "1"}'}]]
    """
    parser, batches = _Parser(columns, event_time), []
    for piece in _pieces(path, share, shares, length):
        batches.append(parser.read(piece))
        if len(batches) == _PIECES:
            yield pa.concat_batches(batches)
            batches = []
    if batches:
        yield pa.concat_batches(batches)


def _pieces(path: str, share: int, shares: int, length: int) -> Iterator[bytes]:
    """Yields whole lines, which end with a line break as Unix has it."""
    with open(path, "rb") as file:
        if length < 0:
            length = file.seek(0, 2)
        begin, end = length * share // shares, length * (share + 1) // shares
        file.seek(max(begin - 1, 0))
        if begin > 0:
            file.readline()  # the line that begins before this share
        elif file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            file.seek(0)
        while (at := file.tell()) < end and (piece := file.read(min(_PIECE, end - at))):
            if not piece.endswith(b"\n"):
                piece += file.readline()
            if b"\r" in piece:
                piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield piece if piece.endswith(b"\n") else piece + b"\n"


@dataclass(frozen=True)
class _Lines:
    """The lines of a piece that are not empty: where each begins and ends."""

    piece: bytes
    array: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, piece: bytes) -> _Lines:
        array = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(array == _LINE_END)
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        some = ends > begins
        return cls(piece, array, begins[some], ends[some])

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, part: slice) -> _Lines:
        return _Lines(self.piece, self.array, self.begins[part], self.ends[part])

    def text(self) -> memoryview:
        return memoryview(self.piece)[self.begins[0] : self.ends[-1] + 1]

    def texts(self) -> list[bytes]:
        spans = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [self.piece[begin:end] for begin, end in spans]


class _Refused(Exception):
    """Some line of several is not sure to be read as Spark's parser reads it."""


class _Parser:
    """Reads pieces of one file. When most of a piece was not read, the rest of the file is not tried."""

    def __init__(self, columns: pa.Schema, event_time: str | None) -> None:
        texts = [field.with_type(pa.string()) if field.type == INSTANT else field for field in columns]
        self._columns, self._event_time = columns, event_time
        self._schema = pa.schema([*columns, (TEXT, pa.binary())])
        self._options = pj.ParseOptions(explicit_schema=pa.schema(texts), unexpected_field_behavior="ignore")
        self._trying = True

    def read(self, piece: bytes) -> pa.RecordBatch:
        lines, self._refusals = _Lines.of(piece), 0
        if not self._trying or not len(lines):
            return self._unread(lines)
        read = pa.concat_batches(self._read(lines))
        self._trying = 2 * read.column(TEXT).null_count >= len(read)
        return read

    def _read(self, lines: _Lines) -> list[pa.RecordBatch]:
        """Reads what can be read of some lines: refused ones without one that Arrow's parser names, or by halves."""
        if not len(lines):
            return []
        try:
            return [self._parsed(lines)]
        except (_Refused, pa.ArrowException, UnicodeDecodeError) as error:
            self._refusals += 1
            if self._refusals > _REFUSALS or len(lines) == 1:
                return [self._unread(lines)]
            if named := _ROW.search(str(error)):
                at = int(named[1])
                return [*self._read(lines[:at]), self._unread(lines[at : at + 1]), *self._read(lines[at + 1 :])]
            half = len(lines) // 2
            return [*self._read(lines[:half]), *self._read(lines[half:])]

    def _unread(self, lines: _Lines) -> pa.RecordBatch:
        texts = pa.array([text for text in lines.texts() if text.strip(_BLANKS)], pa.binary())
        nothing = [pa.nulls(len(texts), field.type) for field in self._columns]
        return pa.record_batch([*nothing, texts], schema=self._schema)

    def _parsed(self, lines: _Lines) -> pa.RecordBatch:
        _refuse_odd_lines(lines)
        text = lines.text()
        options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        rows = pj.read_json(pa.BufferReader(text), read_options=options, parse_options=self._options)
        # Each line begins and ends with a brace, so that no object has several lines; then no line has several objects.
        if rows.num_rows != len(lines):
            raise _Refused("a line is not one object")
        (found,) = rows.to_batches()
        arrays = [
            _instants(found.column(field.name)) if field.type == INSTANT else found.column(field.name)
            for field in self._columns
        ]
        unsure = [_odd_numbers(array) for array in arrays if types.is_float64(array.type)]
        if self._event_time is not None:
            unsure.append(_no_times(arrays[self._columns.get_field_index(self._event_time)]))
        batch = pa.record_batch([*arrays, pa.nulls(len(lines), pa.binary())], schema=self._schema)
        return self._without(batch, np.logical_or.reduce(unsure), lines) if unsure else batch

    def _without(self, batch: pa.RecordBatch, unsure: np.ndarray, lines: _Lines) -> pa.RecordBatch:
        """Returns the batch with lines in place of what was read of them, where that is not sure."""
        if not unsure.any():
            return batch
        texts = [text if odd else None for text, odd in zip(lines.texts(), unsure.tolist(), strict=True)]
        sure = [pc.if_else(~unsure, column, None) for column in batch.columns[:-1]]
        return pa.record_batch([*sure, pa.array(texts, pa.binary())], schema=self._schema)


def _refuse_odd_lines(lines: _Lines) -> None:
    """Refuses lines that do not look like an object each, and what Arrow's parser takes and Spark's does not."""
    some = lines.array[lines.begins[0] : lines.ends[-1] + 1]
    if some.max() > 127:
        str(lines.text(), "utf-8")
    if some.min() == 0 or ((some == _I).any() and _INFINITY.search(lines.text())):
        raise _Refused("a NUL, at which Arrow's parser ends, or a number as it alone writes it")
    whole = (lines.array[lines.begins] == _OPEN) & (lines.array[lines.ends - 1] == _CLOSE)
    if not whole.all():
        raise _Refused(f"a line that is no object in row {whole.argmin()}")
    longest = (lines.ends - lines.begins).max()
    if longest >= _LONGEST_NUMBER:
        sampled = _OF_NUMBER[some[::_SAMPLED]]
        levels = np.add.reduceat(_OF_LEVEL[some], lines.begins - lines.begins[0], dtype=np.int64)
        if longest >= _LONGEST_NAME or (sampled[:-2] & sampled[1:-1] & sampled[2:]).any() or levels.max() >= 1000:
            raise _Refused("a line that may be beyond the limits of Spark's parser")


def _odd_numbers(column: pa.Array) -> np.ndarray:
    """Finds numbers without end, and zeros that are negative, which Spark's parser may read as whole and so as none."""
    numbers = column.fill_null(1.0).to_numpy()
    odd: np.ndarray = ~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers))
    return odd


def _no_times(column: pa.Array) -> np.ndarray:
    """Finds event times, in whole seconds or as instants, that are missing or not in the years 1 to 9999."""
    unit = 1 if column.type == INSTANT else SECOND
    times = column.cast(pa.int64()).fill_null(YEAR_10000).to_numpy()
    absent: np.ndarray = (times < YEAR_1 // unit) | (times >= YEAR_10000 // unit)
    return absent


def _instants(texts: pa.Array) -> pa.Array:
    """Parses times in a form that is sure: 2026-01-31T10:00:00.000000Z, with a fraction or not, all with Z or none."""
    if texts.null_count == len(texts):
        return texts.cast(INSTANT)
    zoned, shortest = pc.all(pc.ends_with(texts, "Z")).as_py(), pc.min(pc.binary_length(texts)).as_py()
    if shortest < len("2026-01-31T10:00:00") + zoned:
        raise _Refused("a time of another form")
    return texts.cast(INSTANT) if zoned else texts.cast(pa.timestamp("us")).cast(INSTANT)
