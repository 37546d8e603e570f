"""Attacks through files and bodies: what was changed outside is refused, nothing in it runs, and no secret gets out."""

from __future__ import annotations

import ast
import logging
import os
import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import headrace
from headrace.log import Group, Log
from headrace.server import Service
from headrace.system.home import Home, SystemConfig
from headrace.views.archive.archivetable import Archive
from headrace.views.query.queries import Query
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from tests.server.conftest import LINES, feed, partial_row, visitors, visits
from tests.views.archives import write

# What reads bytes and may run what they say.
RUNNING = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "yaml"}
OUTSIDE = ["log", "server", "system", "views"]
CHECKPOINTS = ["checkpoint/*.py", "spark/filelogs.py", "spark/offsetlog.py"]


class Bomb:
    """Whoever unpickles it makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def bomb(tmp_path: Path) -> Iterator[bytes]:
    """A pickle that must not burst."""
    burst = tmp_path / "burst"
    with pytest.raises(FileNotFoundError):  # it would: this one has no place for its directory
        pickle.loads(pickle.dumps(Bomb(burst / "x")))
    yield pickle.dumps(Bomb(burst))
    assert not burst.exists()


def test_no_code_that_reads_what_came_from_outside_can_run_it() -> None:
    root = Path(headrace.__file__).parent
    files = [file for package in OUTSIDE for file in (root / package).rglob("*.py")]
    files += [file for pattern in CHECKPOINTS for file in (root / "engine").glob(pattern)]
    assert len(files) > 100
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not RUNNING & {name.partition(".")[0] for name in names}, file
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                assert called not in ("eval", "exec"), file
                assert "allow_pickle" not in {keyword.arg for keyword in node.keywords}, file


def test_pickles_in_files_of_the_log(tmp_path: Path, bomb: bytes) -> None:
    log = Log(tmp_path / "log")
    topic = log.create("visits", values="user string", partitions=1)
    topic.append(0, topic.batch([{"user": "ann"}], timestamps=[0]))
    group = Group(log, "visits", "readers")
    group.commit({0: 1})
    files = [path for path in (tmp_path / "log").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} > {".json"}

    def read() -> None:
        opened = Log(tmp_path / "log")
        again = opened.topic("visits")
        [record for record in again.read(0, 0, 10)]
        Group(opened, "visits", "readers").committed()
        again.append(0, again.batch([{"user": "bob"}], timestamps=[0]))

    for path in files:
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        path.write_bytes(bomb)
        try:
            read()  # a lock, or an index that is made anew
        except Exception as error:
            assert "burst" not in str(error), path
        shutil.rmtree(tmp_path / "log")
        shutil.move(tmp_path / "copy", tmp_path / "log")
    read()


def test_pickles_in_rows_of_the_store(client: httpx.Client, view: StoredView, tmp_path: Path, bomb: bytes) -> None:
    feed(view, partial_row("a", 0, "x"))
    with sqlite3.connect(tmp_path / "views.db") as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(view_visitors)") if "BLOB" in str(row[2])]
        assert columns
        for data in (bomb, b"b" + bomb, b"j" + bomb):  # as it is, as a sketch, as JSON
            for column in columns:
                assert database.execute(f'UPDATE view_visitors SET "{column}" = ?', [data]).rowcount == 1
            database.commit()
            assert client.get("/views/visitors").status_code in (400, 500)


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", "application/octet-stream"])
def test_pickles_in_bodies(client: httpx.Client, service: Service, bomb: bytes, kind: str) -> None:
    for path in ("/topics/visits", "/sql", "/views/visitors/rollback"):
        answer = client.post(path, content=bomb, headers={"Content-Type": kind})
        assert answer.status_code in (400, 415, 422), (path, answer.text)
    text = bomb.decode("latin-1")
    assert client.get("/views/visitors", params={"after": text}).status_code == 400
    answer = client.post("/topics/visits", json={"user": text, "url": "a", "ts": "2026-01-31"}, headers=LINES)
    assert answer.status_code == 200  # it is text
    assert sum(service.topics["visits"].offsets().values()) == 1


def test_pickles_in_master_data(tmp_path: Path, bomb: bytes) -> None:
    archive = Archive(visits, tmp_path)
    write(archive, tmp_path, [(0, {"user": "ann", "url": "a", "ts": 0}, 0)])
    (tmp_path / "manifests/step-000000.json").write_bytes(bomb)
    with pytest.raises(ValueError, match=r"is damaged: step-000000\.json: it is not a manifest"):
        Archive(visits, tmp_path).table()


def test_pickles_in_the_directory_of_a_system(tmp_path: Path, bomb: bytes) -> None:
    home = Home(tmp_path)
    for name in ("runs.json", "up.lock"):
        (tmp_path / name).write_bytes(bomb)
    with pytest.raises(ValueError, match="is damaged"):
        home.config()
    assert home.holder() is None  # nobody holds it, whatever it says
    with home.exclusive() as lock:
        lock.publish_url(None)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/views",
        "postgresql://ann@127.0.0.1:1/views?password=hunter2",
        "postgresql://ann:hunter2@127.0.0.1:port/views",
        "postgres://ann:hunter2@127.0.0.1:1/views",
        "mysql://ann:hunter2@127.0.0.1/views",
        "ann:hunter2@127.0.0.1/views",
    ],
)
def test_the_password_of_a_store_is_told_to_nobody(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(Exception) as error:
        Store(url).view(visitors.layout()).answer(Query())
    chained: BaseException | None = error.value
    while chained is not None:
        assert "hunter2" not in str(chained)
        assert "hunter2" not in repr(chained)
        chained = chained.__cause__ or (None if chained.__suppress_context__ else chained.__context__)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:hunter2@db/views", "postgresql://ann@db/views?password=hunter2", "postgresql://db/v?passfile=x"],
)
def test_the_password_of_a_store_is_not_written_down(url: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.save_config(SystemConfig.of("app.py", url, "log"))
    assert "hunter2" not in (tmp_path / "runs.json").read_text()
    config = home.config()
    assert config is not None
    assert config.store.startswith("postgresql://")
