"""Asks a schema registry for schemas, by the client of confluent-kafka, and registers new ones.

A schema under an id never changes, so each process asks for it once. `who` is the node that asks, which errors name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NoReturn

from headrace.edges.deadlines import within
from headrace.model.errors import PipelineError
from headrace.model.schemaregistry import Format, SchemaRegistry

_TIMEOUT: Final = 10
"""Seconds to wait for the next bytes of an answer; the client asks up to four times."""
_PATIENCE: Final = 60.0
"""Seconds for a schema and all that it refers to, however slowly the bytes come."""
_LARGEST: Final = 4 << 20
"""Bytes of an answer. A registry stores schemas as records of Kafka's, which have a megabyte unless that is changed."""
_MOST_REFERENCES: Final = 200  # of a schema and of those that it refers to
_LONGEST: Final = 300  # characters of a registry's message
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

    def ask(client: Any) -> RegisteredSchema:
        return _registered(client, id, client.get_schema(id, fmt=_SERIALIZED[format]), format)

    found: RegisteredSchema = _asked(who, registry, ask)
    return found


def latest_schema(who: str, registry: SchemaRegistry, subject: str, format: Format) -> RegisteredSchema:
    """Returns the latest schema of a subject. Raises UnknownSchema if there is none."""

    def ask(client: Any) -> RegisteredSchema:
        latest = client.get_latest_version(subject, fmt=_SERIALIZED[format])
        return _registered(client, latest.schema_id, latest.schema, format)

    found: RegisteredSchema = _asked(who, registry, ask)
    return found


@lru_cache(100)
def register(who: str, registry: SchemaRegistry, subject: str, format: Format, text: str) -> int:
    """Registers a schema under a subject, unless it is there; returns its id."""
    package = _package(who)
    schema = package.Schema(text, format.upper())
    return int(_asked(who, registry, lambda client: _checked_id(client.register_schema(subject, schema))))


def _registered(client: Any, id: Any, schema: Any, format: Format) -> RegisteredSchema:
    """Returns a schema with those that it refers to. Raises ValueError if the registry's answer is none."""
    references: dict[str, str] = {}
    seen: set[str] = set()

    def collect(referring: Any) -> None:
        for each in referring.references or ():
            if each.name in seen:
                continue
            seen.add(each.name)
            if len(seen) > _MOST_REFERENCES:
                raise ValueError(f"a schema refers to more than {_MOST_REFERENCES} others")
            found = client.get_version(each.subject, each.version, fmt=_SERIALIZED[format]).schema
            collect(found)
            references[each.name] = _checked_text(found)

    collect(schema)
    kind = (schema.schema_type or "AVRO").lower()
    return RegisteredSchema(_checked_id(id), kind, _checked_text(schema), tuple(references.items()))


def _checked_text(schema: Any) -> str:
    text = schema.schema_str
    if not isinstance(text, str):
        raise ValueError("a schema is no text")
    return text


def _checked_id(id: Any) -> int:
    if type(id) is not int or not 0 <= id < 1 << 32:
        raise ValueError("the id of a schema is no number of four bytes")
    return id


def _asked(who: str, registry: SchemaRegistry, ask: Callable[[Any], Any]) -> Any:
    """Returns the registry's answer. What it says may contain the password that it was sent, which is removed."""
    package = _package(who)
    try:
        return within(_PATIENCE, lambda: ask(_client(registry)))
    except package.SchemaRegistryError as error:
        _refuse(who, registry, error)
    except TimeoutError:
        _client(registry)._rest_client.session.close()  # which ends what is under way
        _client.cache_clear()
        raise PipelineError(
            f"{who}: the schema registry at {registry} has not answered for {_PATIENCE:g} seconds; check that it "
            "runs, and that host and port are right"
        ) from None
    except OSError as error:
        raise PipelineError(
            f"{who}: the schema registry at {registry} cannot be asked: {_brief(registry, error)}"
        ) from None
    except Exception as error:  # of the HTTP client, whose package is not ours to know, or at an odd answer
        if any(kind.__name__ == "TransportError" for kind in type(error).__mro__):
            raise PipelineError(
                f"{who}: no schema registry answers at {registry} ({_brief(registry, error)}); check that it runs, and "
                "that host and port are right"
            ) from None
        raise PipelineError(
            f"{who}: what answers at {registry} is no schema registry: {_brief(registry, error)}; check host and port"
        ) from None


def _brief(registry: SchemaRegistry, message: object) -> str:
    """Returns a message in one line, not all of a long one, and without the password, which it may repeat."""
    text = str(message) or type(message).__name__
    if registry.password:
        sent = base64.b64encode(f"{registry.username}:{registry.password}".encode()).decode()
        text = text.replace(registry.password, "***").replace(sent, "***")
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _refuse(who: str, registry: SchemaRegistry, error: Any) -> NoReturn:
    status = error.http_status_code
    if status == _NOT_FOUND:
        raise UnknownSchema(_brief(registry, error.error_message)) from None
    if status in (401, 403):
        raise PipelineError(
            f"{who}: the schema registry at {registry} refuses access ({status}); check username and password of "
            "registry=hr.SchemaRegistry(...)"
        ) from None
    if status in (_CONFLICT, _INVALID):
        raise PipelineError(
            f"{who}: the schema registry at {registry} refuses the schema of these elements: "
            f"{_brief(registry, error.error_message)}; change the columns, or the compatibility that is set for the "
            "subject"
        ) from None
    raise PipelineError(
        f"{who}: the schema registry at {registry} says: {_brief(registry, error.error_message)} ({status}); check the "
        "address, and the log of the registry"
    ) from None


@lru_cache(8)
def _client(registry: SchemaRegistry) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    settings: dict[str, Any] = {"url": registry.url, "timeout": _TIMEOUT}
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    if registry.ca is not None:
        settings["ssl.ca.location"] = registry.ca
    client = SchemaRegistryClient(settings)
    _limit(client._rest_client.session)
    return client


def _limit(session: Any) -> None:
    """Limits the size of the answers that an HTTP client takes; asks for none that are compressed, and takes none."""
    http = import_module(type(session).__module__.partition(".")[0])  # httpx or its successor, as the client chose

    class LimitedStream(http.SyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in self._stream:
                size += len(chunk)
                if size > _LARGEST:
                    raise ValueError(f"its answer has more than {_LARGEST:,} bytes")
                yield chunk

        def close(self) -> None:
            self._stream.close()

    def limit(response: Any) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ValueError("its answer is compressed, which nobody asked for")
        response.stream = LimitedStream(response.stream)

    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [limit]}


def _package(who: str) -> Any:
    """Imports the client's package. Refuses if it is not installed."""
    try:
        import confluent_kafka.schema_registry as package
    except ImportError:
        raise PipelineError(
            f"{who}: a schema registry needs a client; install it with pip install 'headrace[registry]'"
        ) from None
    return package
