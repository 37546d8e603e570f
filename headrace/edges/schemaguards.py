"""Guards against schemas that are small to write and endless to read, as a hostile registry or file may have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOST_FIELDS: Final = 10_000


class FieldCount:
    """Counts the fields of a schema with its records written out; refuses more than 10,000.

    Of thirty records, each with two fields of the next, that would be a billion.

    >>> count = FieldCount()
    >>> count.add("visit", 9_999)
    >>> count.add("visit", 2)
    Traceback (most recent call last):
        ...
    TypeError: 'visit' has more than 10,000 fields with its records written out, which is no column
    """

    def __init__(self) -> None:
        self._fields = 0

    def add(self, name: str, fields: int) -> None:
        """Adds the fields of one occurrence of a record."""
        self._fields += fields
        if self._fields > _MOST_FIELDS:
            raise TypeError(
                f"{name!r} has more than {_MOST_FIELDS:,} fields with its records written out, which is no column"
            )


def contains_itself(schema: Any, names: Mapping[str, Any]) -> bool:
    """Returns whether a value of an Avro schema can be nested without end. Refuses arrays of values without any bytes.

    fastavro's compiled reader does not limit the depth of values, and ends the process; and ten bytes can say that an
    array has 2^60 nulls.

    >>> contains_itself({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}, {})
    True
    """
    done: set[str] = set()

    def visit(part: Any, path: tuple[str, ...]) -> bool:
        name = _name(part)
        if name in path:
            return True
        if name in done:
            return False
        defined = names.get(part, part) if isinstance(part, str) else part
        if isinstance(defined, dict) and defined["type"] == "array" and _is_empty(defined["items"], names, ()):
            raise TypeError("it has an array of values that take no bytes, of which there may be any number")
        if any(visit(each, path if name is None else (*path, name)) for each in _parts(defined)):
            return True
        if name is not None:
            done.add(name)
        return False

    return visit(schema, ())


def _name(schema: Any) -> str | None:
    """Returns the name of a record, or a name by which a schema is referred to."""
    if isinstance(schema, dict):
        name = schema.get("name")
        return name if isinstance(name, str) else None
    return schema if isinstance(schema, str) else None


def _parts(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        if isinstance(schema["type"], dict | list):
            yield schema["type"]
        yield from (field["type"] for field in schema.get("fields", ()))
        yield from (schema[name] for name in ("items", "values") if name in schema)


def _is_empty(schema: Any, names: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Returns whether values of a schema take no bytes: nulls, and records of them."""
    if isinstance(schema, str):
        if schema == "null":
            return True
        if schema not in names or schema in path:
            return False
        path, schema = (*path, schema), names[schema]
    if not isinstance(schema, dict):
        return False  # the value of a union begins with its number
    if schema["type"] == "record":
        return all(_is_empty(field["type"], names, path) for field in schema["fields"])
    return bool(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0))
