"""Sources and sinks by URI: which transform is meant, and with which options. What is meant only."""

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
from headrace.model.sinks import WriteJson, WriteParquet, WriteText
from headrace.model.sockets import ReadSocket
from headrace.model.sources import Rate, ReadCsv, ReadJson, ReadParquet, ReadText
from headrace.model.tables import WriteTable
from headrace.model.topics import ReadTopic, WriteTopic


def Read(uri: str, **options: Any) -> Primitive:
    """The source that a URI names. Options that are text may be in the URI: they are those of the source.

    - files: "text:data/*.txt", "json:", "csv:", "parquet:"; elsewhere "parquet+s3a://bucket/visits", "json+hdfs://..."
    - topics: "topic:DIRECTORY/NAME", "kafka://HOST:PORT/NAME"
    - lines of a socket: "tcp://HOST:PORT"; numbers: "rate:100", so many a second

    >>> import headrace as hr
    >>> hr.Pipeline() | hr.Read("csv:visits/?event_time=ts&schema=user string, ts timestamp")
    <PCollection of rows from 'ReadCsv', bounded>
    >>> hr.Read("jsn:visits/")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: Read('jsn:visits/'): there is no source jsn:, did you mean json:? There are \
text:PATH, json:PATH, csv:PATH, parquet:PATH, FORMAT+s3a://BUCKET/PATH and the like, topic:DIRECTORY/NAME, \
kafka://HOST:PORT/NAME, tcp://HOST:PORT, rate:NUMBER
    """
    return _Meant("Read", uri, options, _SOURCES, _SINKS).transform()


def Write(uri: str, **options: Any) -> Primitive:
    """The sink that a URI names. Options that are text may be in the URI: they are those of the sink.

    - files: "text:out/", "json:", "parquet:"; elsewhere "parquet+s3a://bucket/out"
    - topics: "topic:DIRECTORY/NAME", "kafka://HOST:PORT/NAME"
    - tables: "sqlite:///FILE?table=hits", "postgresql://USER:PASSWORD@HOST/DATABASE?table=hits&mode=upsert&key=url,day"

    >>> import headrace as hr
    >>> print(hr.Write("sqlite:///counts.db?table=counts&mode=upsert", key=["word"]))
    WriteTable('sqlite+pysqlite:///counts.db', 'counts', key=['word'], mode='upsert')
    """
    return _Meant("Write", uri, options, _SINKS, _SOURCES).transform()


@dataclass(frozen=True)
class _Kind:
    """What a scheme stands for: how it is written, the transform, and how that is made of the URI."""

    form: str
    transform: type[Any]
    make: Callable[[_Meant, type[Any]], Primitive]


@dataclass(frozen=True)
class _Meant:
    """A URI that somebody gave, and what there is: `kinds` by scheme, and `others`, which are for the other way."""

    caller: str
    uri: str
    options: dict[str, Any]
    kinds: dict[str, _Kind]
    others: dict[str, _Kind]

    def transform(self) -> Primitive:
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
            raise PipelineError(f"{self.caller}: this is no URI: {error}; there are {self._forms()}") from None

    @property
    def scheme(self) -> str:
        return self.parts.scheme

    @property
    def plain(self) -> str:
        """The URI without options."""
        return self.uri.partition("?")[0]

    def in_query(self) -> dict[str, str]:
        """The options in the URI."""
        try:
            given = parse_qsl(self.parts.query, keep_blank_values=True, strict_parsing=bool(self.parts.query))
        except ValueError:
            raise self.wrong("after ? come options such as ?event_time=ts; a ? that is part of a glob is %3F") from None
        if twice := sorted({name for name, _ in given if [each for each, _ in given].count(name) > 1}):
            raise self.wrong(f"it has the option {twice[0]} twice; give it once")
        return dict(given)

    def made(self, transform: type[Any], place: Any, given: dict[str, Any]) -> Primitive:
        """The transform of a place, with the options that were given in the URI and those that are arguments."""
        if both := sorted({*given} & {*self.options}):
            raise self.wrong(f"the option {both[0]} is in the URI and an argument, too; give one of them")
        name, known = transform.__name__, dict([*inspect.signature(transform).parameters.items()][1:])
        for each in sorted({*given, *self.options} - {*known}):
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise self.wrong(f"{name} has no option {each}{_meant(each, [*known])}; {there}")
        for each, option in known.items():
            if option.default is option.empty and each not in {**given, **self.options}:
                raise self.wrong(f"{name} needs the {each}: ?{each}=... in the URI, or the argument {each}=...")
            if each in given and isinstance(option.default, bool):
                given[each] = self._flag(each, given[each])
        if "watermark" in given:
            raise self.wrong("a watermark policy is no text; give it as an argument, watermark=hr.BoundedDisorder(...)")
        meant: Primitive = transform(place, **given, **self.options)
        return meant

    def wrong(self, why: str) -> PipelineError:
        return PipelineError(f"{self.caller}({self.shown()!r}): {why}")

    def _flag(self, name: str, given: str) -> bool:
        if given not in ("true", "false"):
            raise self.wrong(f"{name} is true or false, got {given!r}")
        return given == "true"

    def shown(self) -> str:
        """The URI as it may be shown: without its password, and without options, which may hold one."""
        scheme, _, rest = self.uri.partition("://")
        user, at, host = rest.rpartition("@")  # a password that was not quoted may have any sign
        if not at or ":" not in user:
            return self.plain
        return f"{scheme}://{user.partition(':')[0]}:***@{host.partition('?')[0]}"

    def _forms(self) -> str:
        return ", ".join(dict.fromkeys(kind.form for kind in self.kinds.values()))

    def _unknown(self) -> PipelineError:
        what = {"Read": "source", "Write": "sink"}
        scheme, there = self.scheme, f"There are {self._forms()}"
        if scheme.partition("+")[0] in self.others:
            other = next(caller for caller in what if caller != self.caller)
            return self.wrong(f"{scheme}: is only a {what[other]}, for hr.{other}. {there}")
        format = _FORMATS.get(posixpath.splitext(self.parts.path)[1])
        if format in self.kinds and (not scheme or self.parts.netloc):
            written = f"{format}+{self.shown()}" if scheme else f"{format}:{self.shown()}"
            return self.wrong(f"it does not say in which format; did you mean {written!r}? {there}")
        if not scheme:
            return self.wrong(f"it has no scheme. {there}")
        near = _meant(scheme, [*self.kinds], ":")
        return self.wrong(f"there is no {what[self.caller]} {scheme}:{near}{'?' if near else '.'} {there}")


def _meant(given: str, names: list[str], after: str = "") -> str:
    near = get_close_matches(_ALSO.get(given, given), names, 1)
    return f", did you mean {near[0]}{after}" if near else ""


def _of_files(meant: _Meant, transform: type[Any]) -> Primitive:
    format, _, elsewhere = meant.scheme.partition("+")
    parts = meant.parts
    if not elsewhere and parts.netloc:
        path = meant.shown().partition("://")[2]
        raise meant.wrong(f"a path on this machine has no host; write '{format}:{path}' or '{format}:///{path}'")
    path = unquote(parts.path)
    if elsewhere:
        path = f"{elsewhere}://{parts.netloc}{path}"
    elif not path:
        raise meant.wrong(f"it has no path; write for instance '{format}:data/'")
    return meant.made(transform, path, meant.in_query())


def _by_uri(meant: _Meant, transform: type[Any]) -> Primitive:
    """By transforms that take the URI themselves."""
    return meant.made(transform, meant.plain, meant.in_query())


def _of_tables(meant: _Meant, transform: type[Any]) -> Primitive:
    """What is no option of the transform is one of the database."""
    given = meant.in_query()
    options: dict[str, Any] = {name: given.pop(name) for name in ("table", "mode", "key", "columns") if name in given}
    for name in ("key", "columns"):
        if name in options:
            options[name] = options[name].split(",")
    return meant.made(transform, f"{meant.plain}?{urlencode(given)}" if given else meant.plain, options)


def _of_numbers(meant: _Meant, transform: type[Any]) -> Primitive:
    number = meant.parts.path
    if not number.isdecimal():
        raise meant.wrong(f"it takes how many numbers a second, as in 'rate:100', got {number!r}")
    return meant.made(transform, int(number), meant.in_query())


_ELSEWHERE: Final = "FORMAT+s3a://BUCKET/PATH and the like"

_SOURCES: Final[dict[str, _Kind]] = {
    "text": _Kind("text:PATH", ReadText, _of_files),
    "json": _Kind("json:PATH", ReadJson, _of_files),
    "csv": _Kind("csv:PATH", ReadCsv, _of_files),
    "parquet": _Kind(f"parquet:PATH, {_ELSEWHERE}", ReadParquet, _of_files),
    "topic": _Kind("topic:DIRECTORY/NAME", ReadTopic, _by_uri),
    "kafka": _Kind("kafka://HOST:PORT/NAME", ReadTopic, _by_uri),
    "tcp": _Kind("tcp://HOST:PORT", ReadSocket, _by_uri),
    "rate": _Kind("rate:NUMBER", Rate, _of_numbers),
}

_SINKS: Final[dict[str, _Kind]] = {
    "text": _Kind("text:PATH", WriteText, _of_files),
    "json": _Kind("json:PATH", WriteJson, _of_files),
    "parquet": _Kind(f"parquet:PATH, {_ELSEWHERE}", WriteParquet, _of_files),
    "topic": _Kind("topic:DIRECTORY/NAME", WriteTopic, _by_uri),
    "kafka": _Kind("kafka://HOST:PORT/NAME", WriteTopic, _by_uri),
    "sqlite": _Kind("sqlite:///FILE?table=NAME", WriteTable, _of_tables),
    "postgresql": _Kind("postgresql://USER:PASSWORD@HOST/DATABASE?table=NAME", WriteTable, _of_tables),
}

_FORMATS: Final = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_ALSO: Final = {
    "jsonl": "json",
    "txt": "text",
    "file": "text",
    "socket": "tcp",
    "postgres": "postgresql",
    "pg": "postgresql",
}
