"""The command line of a system, without Spark: of one that rests, and of one whose server answers."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.commands.main import main
from headrace.log import Log
from headrace.server import Server, Service
from headrace.system.home import Home, SystemConfig
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store

APP = """
import headrace as hr

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")

@hr.view(visits, window=hr.FixedWindows("1 hour"))
def hits(events):
    return events | hr.GroupBy("url").aggregate(n=hr.count())
"""
HOUR = 3_600_000_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Where a system ran: two batch versions, and a speed layer with one more event."""
    file = tmp_path / "app.py"
    file.write_text(APP)
    home = Home(tmp_path / "data")
    home.path.mkdir()
    store = Store(home.store, clock=lambda: HOUR)
    view = store.view(App.load(file).views["hits"].layout())
    for number in range(3):
        view.add(MicroBatch("s", number, {0: number}, {0: number + 1}), [Partial(("foo.com",), 0, HOUR, (1,))])
        if number < 2:
            with view.build(view.cut()) as version:
                version.load([Partial(("foo.com",), 0, HOUR, (number + 1,))])
                version.publish()
    store.close()
    home.save_config(SystemConfig.of(str(file), home.store, home.log))
    return home


@pytest.fixture(params=["resting", "running"])
def system(request: pytest.FixtureRequest, home: Home, tmp_path: Path) -> Iterator[Home]:
    """The same, as it is or with a server."""
    if request.param == "resting":
        yield home
        return
    store = Store(home.store)
    service = Service.of(App.load(tmp_path / "app.py"), store, Log(home.log))
    with home.exclusive() as lock, Server(service, port=0) as server:
        lock.publish_url(server.url)
        yield home
    store.close()


def run(home: Home, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--dir", str(home.path)])


def test_a_question_is_answered(system: Home) -> None:
    found = json.loads(run(system, "query", "hits", "--url", "foo.com", "--from", "1970-01-01", "--json").stdout)
    assert [row["values"] for row in found["rows"]] == [{"n": 3}]
    assert (found["version"], found["boundary"], found["reached"]) == (2, {"0": 2}, {"0": 3})
    table = run(system, "query", "hits", "--top=n:1")
    assert table.stdout.split() == [
        "url",
        "from",
        "to",
        "n",
        "foo.com",
        *["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z", "3"],
    ]
    assert "1 row: version 2 and the speed layer" in table.stderr


def test_going_back_and_forth(system: Home) -> None:
    assert run(system, "rollback", "hits").stdout == "hits: version 1 is current\n"
    found = json.loads(run(system, "query", "hits", "--json").stdout)
    assert (found["version"], found["rows"][0]["values"]) == (1, {"n": 3})
    assert run(system, "rollback", "hits", "--to", "2").stdout == "hits: version 2 is current\n"
    gone = run(system, "rollback", "hits", "--to", "9")
    assert (gone.exit_code, gone.stderr) == (
        1,
        "error: view 'hits' has no version 9; there are [1, 2]\n",
    )


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["query", "hits", "--uri", "foo.com"], "view 'hits' has no parameter 'uri'; there are its keys url"),
        (["query", "hits", "url"], "a query has options such as --url foo.com/blog --top hits:10, got 'url'"),
        (["query", "hits", "--url"], "the option --url needs a value"),
        (["query", "nothing"], "'nothing'; there are hits"),
        (["query", "hits", "--from", "yesterday-ish"], "'yesterday-ish'"),
    ],
)
def test_a_wrong_question_is_refused_with_the_reason(home: Home, args: list[str], reason: str) -> None:
    result = run(home, *args)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_the_status_of_a_system_that_rests(home: Home) -> None:
    told = json.loads(run(home, "status", "--json").stdout)
    assert told["pid"] is None
    assert [each["version"] for each in told["views"]["hits"]["versions"]] == [1, 2]
    shown = run(home, "status").stdout
    assert "not running" in shown
    assert "hits 2 (current)" in shown


def test_where_nothing_ever_ran(tmp_path: Path) -> None:
    result = run(Home(tmp_path / "none"), "query", "hits")
    assert (result.exit_code, "create one with `headrace up FILE`" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["up", "none.py"], "there is no file 'none.py'"),
        (["up", "app.py", "--batch-every", "-1 minute"], "an interval must be positive"),
        (["up", "app.py", "--batch-every", "soon"], "soon"),
        (["up", "app.py", "--store", "mysql://host/name"], "a store is sqlite:///FILE or postgresql://"),
        (["batch", "app.py", "nothing"], "app.py declares no view 'nothing'; there are hits"),
    ],
)
def test_what_cannot_run_is_refused_before_spark_starts(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headrace.system.lifecycle.spark_session", _no_spark)
    result = run(home, *args)
    assert result.exit_code == 1
    assert reason in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["up", "app.py"],
        ["batch", "app.py", "hits"],
        ["query", "hits"],
        ["status"],
        ["rollback", "hits"],
    ],
    ids=lambda args: args[0],
)
def test_a_store_of_another_version_is_refused_by_every_command(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headrace.system.lifecycle.spark_session", _no_spark)
    with sqlite3.connect(home.path / "views.db") as database:
        database.execute("UPDATE headrace_store SET format = 9")
    database.close()
    result = run(home, *args)
    assert result.exit_code == 1
    assert f"error: the store {home.store} has format 9, and this version of Headrace reads format 1" in result.stderr
    assert "move views.db of the system away" in result.stderr


def test_a_second_up_is_refused_with_the_pid_of_the_first(home: Home, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.system.lifecycle.spark_session", _no_spark)
    with home.exclusive() as lock:
        lock.publish_url("http://127.0.0.1:8787")
        result = run(home, "up", str(tmp_path / "app.py"))
    holder = "belongs to process"
    assert (result.exit_code, holder in result.stderr, "8787" in result.stderr) == (1, True, True)


def _no_spark(*args: Any) -> Any:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("text", [None, "import headrace as hr\n", "import headrace as hr\nhr.Topc('visits')\n"])
@pytest.mark.parametrize("command", [["up"], ["batch"]])
def test_a_file_that_is_no_app_leaves_no_directory_behind(tmp_path: Path, text: str | None, command: list[str]) -> None:
    if text is not None:
        (tmp_path / "nope.py").write_text(text)
    view = ["hits"] if command == ["batch"] else []
    result = CliRunner().invoke(main, [*command, str(tmp_path / "nope.py"), *view, "--dir", str(tmp_path / "data")])
    assert result.exit_code == 1
    assert "nope.py" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


def test_an_app_is_told_by_the_line_it_fails_in_and_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_the_app.py").write_text("SCHEMA = 'user string'\n")
    file = tmp_path / "app.py"
    file.write_text("from beside_the_app import SCHEMA\nimport headrace as hr\n\nvisits = hr.Topc('visits', SCHEMA)\n")
    for text in (file.read_text(), file.read_text() + "def visits(:\n"):
        file.write_text(text)
        with pytest.raises(
            ViewError, match=r"app\.py:[45]: (AttributeError: module 'headrace' has no attribute|SyntaxErr)"
        ):
            App.load(file)
    sys.path.remove(str(tmp_path))
