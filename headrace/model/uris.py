"""Read and Write: find the source or sink for a URI, with its options."""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from headrace.model.errors import PipelineError
from headrace.model.pipeline import Primitive
from headrace.model.sinks import WriteAvro, WriteCsv, WriteJson, WriteParquet, WriteText
from headrace.model.sockets import ReadSocket
from headrace.model.sources import Rate, ReadAvro, ReadCsv, ReadFiles, ReadJson, ReadParquet, ReadText
from headrace.model.tables import WriteTable
from headrace.model.tablesources import ReadTable
from headrace.model.topics import ReadTopic, WriteTopic


def Read(uri: str, **options: Any) -> Primitive:
    """Returns the source for a URI. The source's options are arguments or, if they are text, parameters of the URI.

    - files: "text:data/*.txt", "json:", "csv:", "parquet:", "avro:"; remote "parquet+s3a://bucket/visits", "json+hdfs://..."
    - topics: "topic:DIRECTORY/NAME", "kafka://HOST:PORT/NAME"
    - tables: "sqlite:///FILE?table=NAME", "postgresql://USER:PASSWORD@HOST/DATABASE?table=NAME"
    - whole files: "files:data/*.xml"; lines of a socket: "tcp://HOST:PORT"; numbers: "rate:100", rows per second

    >>> import headrace as hr
    >>> hr.Pipeline() | hr.Read("csv:visits/?event_time=ts&schema=user string, ts timestamp")
    <PCollection of rows from 'ReadCsv', bounded>
    >>> hr.Read("jsn:visits/")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: Read('jsn:visits/'): there is no source jsn:, did you mean json:? There are \
text:PATH, json:PATH, csv:PATH, parquet:PATH, FORMAT+s3a://BUCKET/PATH and the like, avro:PATH, \
files:PATH, sqlite:///FILE?table=NAME, postgresql://USER:PASSWORD@HOST/DATABASE?table=NAME, topic:DIRECTORY/NAME, \
kafka://HOST:PORT/NAME, tcp://HOST:PORT, rate:NUMBER
    """
    return _Request("Read", uri, options, _SOURCES, _SINKS).transform()


def Write(uri: str, **options: Any) -> Primitive:
    """Returns the sink for a URI. The sink's options are arguments or, if they are text, parameters of the URI.

    - files: "text:out/", "json:", "csv:", "parquet:", "avro:"; remote "parquet+s3a://bucket/out"
    - topics: "topic:DIRECTORY/NAME", "kafka://HOST:PORT/NAME"
    - tables: "sqlite:///FILE?table=hits", "postgresql://USER:PASSWORD@HOST/DATABASE?table=hits&mode=upsert&key=url,day"

    >>> import headrace as hr
    >>> print(hr.Write("sqlite:///counts.db?table=counts&mode=upsert", key=["word"]))
    WriteTable('sqlite+pysqlite:///counts.db', 'counts', key=['word'], mode='upsert')
    """
    return _Request("Write", uri, options, _SINKS, _SOURCES).transform()


@dataclass(frozen=True)
class _Kind:
    """A kind of source or sink: the form of its URIs, its transform, and the function that makes it."""

    form: str
    transform: type[Any]
    make: Callable[[_Request, type[Any]], Primitive]


@dataclass(frozen=True)
class _Request:
    """A call of Read or Write: the URI and the options, the kinds by scheme, and those of the opposite call."""

    caller: str
    uri: str
    options: dict[str, Any]
    kinds: dict[str, _Kind]
    opposite: dict[str, _Kind]

    def transform(self) -> Primitive:
        """Returns the transform for the URI."""
        if not isinstance(self.uri, str) or not self.uri:
            raise PipelineError(f"{self.caller} takes a URI, got {self.uri!r}; there are {self._forms()}")
        scheme, plus, _ = self.scheme.partition("+")
        kind = self.kinds.get(scheme)
        if kind is None or (plus and kind.make not in (_of_files, _of_tables)):
            raise self._unknown()
        return kind.make(self, kind.transform)

    @property
    def parts(self) -> SplitResult:
        try:
            return urlsplit(self.uri, allow_fragments=False)  # files may have a # in their names
        except ValueError as error:
            raise PipelineError(f"{self.caller}: this is not a URI: {error}; there are {self._forms()}") from None

    @property
    def scheme(self) -> str:
        return self.parts.scheme

    @property
    def plain(self) -> str:
        """The URI without its parameters."""
        return self.uri.partition("?")[0]

    def parameters(self) -> dict[str, str]:
        """Returns the options in the URI."""
        try:
            pairs = parse_qsl(self.parts.query, keep_blank_values=True, strict_parsing=bool(self.parts.query))
        except ValueError:
            raise self.error("after ? come options such as ?event_time=ts; a ? that is part of a glob is %3F") from None
        names = [name for name, _ in pairs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self.error(f"it has the option {twice[0]} twice; give it once")
        return dict(pairs)

    def build(self, transform: type[Any], place: Any, parameters: dict[str, Any]) -> Primitive:
        """Makes the transform for a place, with the options in the URI and those that are arguments."""
        if twice := sorted({*parameters} & {*self.options}):
            raise self.error(f"the option {twice[0]} is in the URI and an argument, too; give one of them")
        kind, options = transform.__name__, dict([*inspect.signature(transform).parameters.items()][1:])
        for name in sorted({*parameters, *self.options} - {*options}):
            existing = f"there are {', '.join(options)}" if options else "there are none"
            raise self.error(f"{kind} has no option {name}{_suggestion(name, [*options])}; {existing}")
        for name, option in options.items():
            if option.default is option.empty and name not in {**parameters, **self.options}:
                raise self.error(f"{kind} needs the {name}: ?{name}=... in the URI, or the argument {name}=...")
            if name in parameters and (isinstance(option.default, bool) or option.annotation == "bool | None"):
                parameters[name] = self._flag(name, parameters[name])
        if "watermark" in parameters:
            raise self.error(
                "a watermark policy cannot be text; give it as an argument, watermark=hr.BoundedDisorder(...)"
            )
        built: Primitive = transform(place, **parameters, **self.options)
        return built

    def error(self, message: str) -> PipelineError:
        """Returns an error about the URI."""
        return PipelineError(f"{self.caller}({self.redacted()!r}): {message}")

    def _flag(self, name: str, text: str) -> bool:
        if text not in ("true", "false"):
            raise self.error(f"{name} must be true or false, got {text!r}")
        return text == "true"

    def redacted(self) -> str:
        """Returns the URI for messages: without its password, and without parameters, which may contain one."""
        scheme, _, authority = self.uri.partition("://")
        user, at, host = authority.rpartition("@")  # a password that is not quoted may contain any character
        if not at or ":" not in user:
            return self.plain
        return f"{scheme}://{user.partition(':')[0]}:***@{host.partition('?')[0]}"

    def _forms(self) -> str:
        return ", ".join(dict.fromkeys(kind.form for kind in self.kinds.values()))

    def _unknown(self) -> PipelineError:
        nouns = {"Read": "source", "Write": "sink"}
        scheme, forms = self.scheme, f"There are {self._forms()}"
        if scheme.partition("+")[0] in self.opposite:
            opposite = next(caller for caller in nouns if caller != self.caller)
            return self.error(f"{scheme}: is only a {nouns[opposite]}, for hr.{opposite}. {forms}")
        format = _FORMATS.get(posixpath.splitext(self.parts.path)[1])
        if format in self.kinds and (not scheme or self.parts.netloc):
            uri = f"{format}+{self.redacted()}" if scheme else f"{format}:{self.redacted()}"
            return self.error(f"it does not say in which format; did you mean {uri!r}? {forms}")
        if not scheme:
            return self.error(f"it has no scheme. {forms}")
        suggestion = _suggestion(scheme, [*self.kinds], ":")
        end = "?" if suggestion else "."
        return self.error(f"there is no {nouns[self.caller]} {scheme}:{suggestion}{end} {forms}")


def _suggestion(name: str, names: list[str], suffix: str = "") -> str:
    matches = get_close_matches(_ALIASES.get(name, name), names, 1)
    return f", did you mean {matches[0]}{suffix}" if matches else ""


def _of_files(request: _Request, transform: type[Any]) -> Primitive:
    format, _, file_system = request.scheme.partition("+")
    parts = request.parts
    if not file_system and parts.netloc:
        path = request.redacted().partition("://")[2]
        raise request.error(f"a path on this machine has no host; write '{format}:{path}' or '{format}:///{path}'")
    path = unquote(parts.path)
    if file_system:
        path = f"{file_system}://{parts.netloc}{path}"
    elif not path:
        raise request.error(f"it has no path; write for instance '{format}:data/'")
    return request.build(transform, path, request.parameters())


def _by_uri(request: _Request, transform: type[Any]) -> Primitive:
    """Makes a transform that parses the URI itself."""
    return request.build(transform, request.plain, request.parameters())


def _of_tables(request: _Request, transform: type[Any]) -> Primitive:
    """Makes a source or sink of tables; parameters that are not its options are those of the database."""
    parameters = request.parameters()
    names = [name for name in inspect.signature(transform).parameters if name != "url" and name in parameters]
    options: dict[str, Any] = {name: parameters.pop(name) for name in names}
    for name in ("key", "columns"):
        if name in options:
            options[name] = options[name].split(",")
    if "partitions" in options:
        if not options["partitions"].isdecimal():
            raise request.error(f"partitions must be a number, got {options['partitions']!r}")
        options["partitions"] = int(options["partitions"])
    return request.build(
        transform, f"{request.plain}?{urlencode(parameters)}" if parameters else request.plain, options
    )


def _of_numbers(request: _Request, transform: type[Any]) -> Primitive:
    number = request.parts.path
    if not number.isdecimal():
        raise request.error(f"it takes a number of rows per second, as in 'rate:100', got {number!r}")
    return request.build(transform, int(number), request.parameters())


_REMOTE: Final = "FORMAT+s3a://BUCKET/PATH and the like"

_SOURCES: Final[dict[str, _Kind]] = {
    "text": _Kind("text:PATH", ReadText, _of_files),
    "json": _Kind("json:PATH", ReadJson, _of_files),
    "csv": _Kind("csv:PATH", ReadCsv, _of_files),
    "parquet": _Kind(f"parquet:PATH, {_REMOTE}", ReadParquet, _of_files),
    "avro": _Kind("avro:PATH", ReadAvro, _of_files),
    "files": _Kind("files:PATH", ReadFiles, _of_files),
    "sqlite": _Kind("sqlite:///FILE?table=NAME", ReadTable, _of_tables),
    "postgresql": _Kind("postgresql://USER:PASSWORD@HOST/DATABASE?table=NAME", ReadTable, _of_tables),
    "topic": _Kind("topic:DIRECTORY/NAME", ReadTopic, _by_uri),
    "kafka": _Kind("kafka://HOST:PORT/NAME", ReadTopic, _by_uri),
    "tcp": _Kind("tcp://HOST:PORT", ReadSocket, _by_uri),
    "rate": _Kind("rate:NUMBER", Rate, _of_numbers),
}

_SINKS: Final[dict[str, _Kind]] = {
    "text": _Kind("text:PATH", WriteText, _of_files),
    "json": _Kind("json:PATH", WriteJson, _of_files),
    "csv": _Kind("csv:PATH", WriteCsv, _of_files),
    "parquet": _Kind(f"parquet:PATH, {_REMOTE}", WriteParquet, _of_files),
    "avro": _Kind("avro:PATH", WriteAvro, _of_files),
    "topic": _Kind("topic:DIRECTORY/NAME", WriteTopic, _by_uri),
    "kafka": _Kind("kafka://HOST:PORT/NAME", WriteTopic, _by_uri),
    "sqlite": _Kind("sqlite:///FILE?table=NAME", WriteTable, _of_tables),
    "postgresql": _Kind("postgresql://USER:PASSWORD@HOST/DATABASE?table=NAME", WriteTable, _of_tables),
}

_FORMATS: Final = {
    ".txt": "text",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".avro": "avro",
}
_ALIASES: Final = {
    "jsonl": "json",
    "txt": "text",
    "file": "text",
    "socket": "tcp",
    "postgres": "postgresql",
    "pg": "postgresql",
}
