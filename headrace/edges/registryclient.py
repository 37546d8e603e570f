"""Asks a schema registry for schemas, by the client of confluent-kafka, and registers new ones.

A schema under an id never changes, so each process asks for it once. `who` is the node that asks, which errors name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import methodcaller
from typing import Any, Final, NoReturn

from headrace.model.errors import PipelineError
from headrace.model.schemaregistry import Format, SchemaRegistry

_TIMEOUT: Final = 10
"""Seconds to wait for an answer."""
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
_SERIALIZED: Final = {"avro": None, "protobuf": "serialized"}  # Protobuf's are wanted as descriptors, not as text


class UnknownSchema(LookupError):
    """The registry has no such schema."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of a registry: its id, its text, and the texts that it refers to by name, each after those it needs.

    The text is JSON if the format is "avro", a FileDescriptorProto in base64 if it is "protobuf". `format` has
    Confluent's name if it is neither.
    """

    id: int
    format: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@lru_cache(1000)
def schema_by_id(who: str, registry: SchemaRegistry, id: int, format: Format) -> RegisteredSchema:
    """Returns the schema with an id. Raises UnknownSchema if there is none."""
    found = _asked(who, registry, lambda client: client.get_schema(id, fmt=_SERIALIZED[format]))
    return _registered(who, registry, id, found, format)


def latest_schema(who: str, registry: SchemaRegistry, subject: str, format: Format) -> RegisteredSchema:
    """Returns the latest schema of a subject. Raises UnknownSchema if there is none."""
    found = _asked(who, registry, lambda client: client.get_latest_version(subject, fmt=_SERIALIZED[format]))
    return _registered(who, registry, found.schema_id, found.schema, format)


@lru_cache(100)
def register(who: str, registry: SchemaRegistry, subject: str, format: Format, text: str) -> int:
    """Registers a schema under a subject, unless it is there; returns its id."""
    package = _package(who)
    schema = package.Schema(text, format.upper())
    return int(_asked(who, registry, lambda client: client.register_schema(subject, schema)))


def _registered(who: str, registry: SchemaRegistry, id: int, schema: Any, format: Format) -> RegisteredSchema:
    references: dict[str, str] = {}

    def collect(text_of: Any) -> None:
        for each in text_of.references or ():
            if each.name not in references:
                ask = methodcaller("get_version", each.subject, each.version, fmt=_SERIALIZED[format])
                found = _asked(who, registry, ask).schema
                collect(found)
                references[each.name] = found.schema_str

    collect(schema)
    kind = (schema.schema_type or "AVRO").lower()
    return RegisteredSchema(id, kind, schema.schema_str, tuple(references.items()))


def _asked(who: str, registry: SchemaRegistry, ask: Callable[[Any], Any]) -> Any:
    """Returns the registry's answer. Nothing that it says can contain a password: it is never sent one in a body."""
    package = _package(who)
    try:
        return ask(_client(registry))
    except package.SchemaRegistryError as error:
        _refuse(who, registry, error)
    except OSError as error:
        raise PipelineError(f"{who}: the schema registry at {registry} cannot be asked: {error}") from None
    except Exception as error:  # of the HTTP client, whose package is not ours to know
        if not any(kind.__name__ == "TransportError" for kind in type(error).__mro__):
            raise
        raise PipelineError(
            f"{who}: no schema registry answers at {registry} ({error}); check that it runs, and that host and port "
            "are right"
        ) from None


def _refuse(who: str, registry: SchemaRegistry, error: Any) -> NoReturn:
    status = error.http_status_code
    if status == _NOT_FOUND:
        raise UnknownSchema(error.error_message) from None
    if status in (401, 403):
        raise PipelineError(
            f"{who}: the schema registry at {registry} refuses access ({status}); check username and password of "
            "registry=hr.SchemaRegistry(...)"
        ) from None
    if status in (_CONFLICT, _INVALID):
        raise PipelineError(
            f"{who}: the schema registry at {registry} refuses the schema of these elements: {error.error_message}; "
            "change the columns, or the compatibility that is set for the subject"
        ) from None
    raise PipelineError(
        f"{who}: the schema registry at {registry} says: {error.error_message} ({status}, {error.error_code})"
    ) from None


@lru_cache(8)
def _client(registry: SchemaRegistry) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    settings: dict[str, Any] = {"url": registry.url, "timeout": _TIMEOUT}
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    if registry.ca is not None:
        settings["ssl.ca.location"] = registry.ca
    return SchemaRegistryClient(settings)


def _package(who: str) -> Any:
    """Imports the client's package. Refuses if it is not installed."""
    try:
        import confluent_kafka.schema_registry as package
    except ImportError:
        raise PipelineError(
            f"{who}: a schema registry needs a client; install it with pip install 'headrace[registry]'"
        ) from None
    return package
