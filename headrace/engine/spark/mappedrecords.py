"""A frame over files of Arrow batches that Spark maps into memory and reads by the column, without Python.

`MappedRecords.java` does it. Spark's own compiler of generated code, Janino, compiles it, so that no JDK is needed; the
executors get it as a jar. What the files are is the caller's business.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.engine.spark.javasources import compiled, constructor

BLOCK: Final = np.dtype(
    [
        ("file", "<i8"),  # its place among the files of the share
        ("position", "<i8"),
        ("length", "<i8"),
        ("checksum", "<i8"),
        ("place", "<i8"),  # of the batch's first record
        ("count", "<i8"),
        ("first", "<i8"),  # and until: the rows that are read
        ("until", "<i8"),
    ]
)
"""One batch in a file."""
Blocks = npt.NDArray[np.void]

_NAME: Final = "MappedRecords"
_compiled: Final[weakref.WeakKeyDictionary[SparkContext, Any]] = weakref.WeakKeyDictionary()
_compiling: Final = threading.Lock()  # Spark takes a jar of one name once


@dataclass(frozen=True)
class Slot:
    """The place of a column in a batch: its node and its first buffer, and those of the struct that it is in."""

    node: int = -1
    buffer: int = -1
    outer: tuple[int, int] = (-1, -1)

    def numbers(self) -> tuple[int, ...]:
        return (self.node, self.buffer, *self.outer)


PLACES: Final = Slot()
"""The column of the places of records, which no batch has."""


@dataclass(frozen=True)
class Share:
    """A task's share of what is read: files, each with the name that errors give it, and blocks of them, in order."""

    files: Sequence[str]
    names: Sequence[str]
    blocks: Blocks


@dataclass(frozen=True)
class Layout:
    """Which columns there are, and where; which rows are no records; and what errors say.

    - key, value: rows whose value is null and whose key begins with `mark` are no records
    - place_bits: so many low bits of a place are an offset
    - damaged, gone: messages with {place}, {file}, {first}, {last} and {next}, of a batch or a file
    """

    schema: StructType
    slots: Sequence[Slot]
    key: Slot
    value: Slot
    mark: bytes
    place_bits: int
    damaged: str
    gone: str


def slots_of(schema: pa.Schema) -> dict[str, Slot]:
    """Returns where each column of a schema is in a batch, and each field of a struct, as "column.field".

    >>> slots_of(pa.schema([("key", pa.binary()), ("value", pa.struct([("n", pa.int64())]))]))["value.n"]
    Slot(node=2, buffer=4, outer=(1, 3))
    """
    slots: dict[str, Slot] = {}
    node = buffer = 0

    def visit(field: pa.Field, name: str, outer: tuple[int, int]) -> None:
        nonlocal node, buffer
        slots[name] = slot = Slot(node, buffer, outer)
        node += 1
        kind = field.type
        nested = [kind.field(at) for at in range(kind.num_fields)]
        has_ends = pa.types.is_string(kind) or pa.types.is_binary(kind)
        buffer += 1 if pa.types.is_struct(kind) else 3 if has_ends else 2
        for each in nested:
            visit(each, f"{name}.{each.name}", (slot.node, slot.buffer) if pa.types.is_struct(kind) else (-1, -1))

    for field in schema:
        visit(field, field.name, (-1, -1))
    return slots


def is_compiled(spark: SparkSession) -> bool:
    """Returns whether a frame has been made in this session before: the first one takes half a second."""
    return spark.sparkContext in _compiled


def mapped_frame(spark: SparkSession, name: str, layout: Layout, shares: Sequence[Share]) -> DataFrame:
    """Returns the frame of what these shares have, one for each task."""
    jvm: Any = spark._jvm
    columns = np.array([slot.numbers() for slot in layout.slots], "<i8").tobytes()
    around = (layout.key.node, layout.key.buffer, layout.value.node, layout.value.buffer, layout.place_bits)
    hidden = np.array(around, "<i8").tobytes()
    table = _constructor(spark.sparkContext).newInstance(
        _objects(
            spark,
            (name, layout.schema.json(), columns, hidden, layout.mark, layout.damaged, layout.gone, len(shares)),
        )
    )
    for number, share in enumerate(shares):
        table.share(number, "\0".join(share.files), "\0".join(share.names), share.blocks.tobytes())
    none = jvm.scala.Option.empty()
    relations = getattr(jvm, "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    datasets = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(spark._jsparkSession, relations.create(table, none, none)), spark)


def _objects(spark: SparkSession, values: Sequence[Any]) -> Any:
    gateway: Any = spark.sparkContext._gateway
    objects = gateway.new_array(gateway.jvm.Object, len(values))
    for at, value in enumerate(values):
        objects[at] = value
    return objects


def _constructor(context: SparkContext) -> Any:
    """Returns the constructor of the table, once compiled; executors load the classes from a jar."""
    with _compiling:
        if context not in _compiled:
            jvm: Any = context._jvm
            compiler = compiled(context, _NAME)
            utils: Any = jvm.org.apache.spark.util.Utils
            folder = utils.createTempDir(tempfile.gettempdir(), "headrace")  # which Spark removes at its end
            jar = Path(folder.getPath(), "headrace-mapped-records.jar")
            with zipfile.ZipFile(jar, "w") as classes:
                for name, octets in compiler.getBytecodes().items():
                    classes.writestr(f"{name.replace('.', '/')}.class", octets)
            context._jsc.addJar(str(jar))
            _compiled[context] = constructor(compiler, _NAME)
        return _compiled[context]
