"""Other users of this machine: what they put into our directories, link to, lock or read is refused or of no avail."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import storm
from headrace.commands.main import main
from headrace.dialects.storm.cluster.control import Control
from headrace.dialects.storm.cluster.messages import Request
from headrace.local.atomicfile import replace_file
from headrace.local.filelock import file_lock
from headrace.local.privatefolder import UntrustedPath
from headrace.log import Consumer, Log, Producer
from headrace.system.client import client_of
from headrace.system.home import Home, SystemConfig
from headrace.views.archive.archivetable import Archive
from headrace.views.archive.writerlock import exclusive_writer
from headrace.views.stores import Store
from tests.dialects.storm.clusters import Cluster
from tests.local.attacker import NOBODY, as_nobody, needs_root, reachable_folder
from tests.waiting import wait_for


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as made:
        yield made


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_cluster(path: Path) -> None:
    with storm.LocalCluster(path):
        pass


def hold_home(path: Path) -> None:
    with Home(path).exclusive():
        pass


def write_master(path: Path) -> None:
    with exclusive_writer(path):
        pass


DOORS: dict[str, Callable[[Path], object]] = {
    "a cluster": open_cluster,
    "its control": Control,
    "a system": hold_home,
    "a client of a system": lambda path: client_of(Home(path)),
    "the configuration of a system": lambda path: Home(path).config(),
    "a new topic": lambda path: Log(path).create("visits"),
    "a topic": lambda path: Log(path).topic("visits"),
    "a store": lambda path: Store(f"sqlite:///{path}/views.db").close(),
    "an archive": lambda path: Archive(hr.Topic("visits", schema="url string"), path),
    "the writer of an archive": write_master,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_directory_that_everybody_may_write_is_refused(folder: Path, door: str) -> None:
    data = folder / "data"
    data.mkdir()
    data.chmod(0o777)
    with pytest.raises(UntrustedPath, match=rf"^{data} has mode 0777 .*`chmod -R go-w {data}`, or choose"):
        DOORS[door](data)
    assert list(data.iterdir()) == []


@needs_root
@pytest.mark.parametrize("door", DOORS)
def test_a_directory_of_another_user_is_refused(folder: Path, door: str) -> None:
    data = folder / "data"
    data.mkdir()
    os.chown(data, NOBODY, NOBODY)
    with pytest.raises(UntrustedPath, match=rf"^{data} has mode 0755 and belongs to nobody \(uid {NOBODY}\), another"):
        DOORS[door](data)
    assert list(data.iterdir()) == []


def test_what_was_made_with_other_modes_before_goes_on(folder: Path) -> None:
    with umask(0o022):
        topic = Log(folder / "log").create("visits")
        topic.append(0, topic.batch([1, 2], timestamps=[1, 2]))
        store = Store(f"sqlite:///{folder}/views.db")
        store.close()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Consumer(Log(folder / "log"), "visits", "billing") as consumer:
        assert [record.value for record in consumer.poll()] == [1, 2]
    with Producer(Log(folder / "log").topic("visits")) as producer:
        producer.send(3)
    Store(f"sqlite:///{folder}/views.db").close()
    hold_home(folder)
    open_cluster(folder / "storm")


@pytest.mark.parametrize("mask", [0, 0o002, 0o022, 0o077])
def test_whatever_is_made_is_for_this_user_only(folder: Path, mask: int) -> None:
    with umask(mask):
        log = Log(folder / "data" / "log")
        topic = log.create("visits", segment_bytes=1, keep_bytes=1)
        for number in range(3):
            topic.partition(0).append(topic.batch([number], timestamps=[number]), producer=7, sequence=number)
        data = next((folder / "data" / "log" / "topics" / "visits" / "0").glob("*2.arrow"))
        data.write_bytes(data.read_bytes() + b"torn")
        with Consumer(log, "visits", "billing") as consumer:
            consumer.poll()
        home = Home(folder / "data")
        with home.exclusive(), Store(home.store).database.writing():
            home.save_config(SystemConfig("app.py", home.store, home.log))
            check_private(folder / "data")
        with Cluster(folder / "data" / "storm", "words"):
            check_private(folder / "data")
    names = {path.name for path in (folder / "data").rglob("*")}
    assert {"up.lock", "views.db", "runs.json", "topic.json", "shares.json", "departed", "lock", "requests"} <= names
    assert any(name.endswith(".torn") for name in names)


def check_private(folder: Path) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


@needs_root
def test_nobody_else_can_hold_a_lock(folder: Path) -> None:
    """A shared lock would keep the owner out for ever. One that was made by an earlier version is closed to others."""
    home, old = Home(folder / "data"), folder / "old"
    with home.exclusive():
        pass
    (folder / "data").chmod(0o755)
    old.write_bytes(b"")
    with file_lock(old):
        pass

    def lock(path: Path) -> None:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)

    for path in (folder / "data" / "up.lock", old):
        with pytest.raises(PermissionError):
            as_nobody(lambda path=path: lock(path))
    with home.exclusive():
        pass


def test_links_at_the_names_of_locks_and_temporary_files_lead_nowhere(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_bytes(b"precious")
    (folder / "up.lock").symlink_to(victim)
    with pytest.raises(UntrustedPath, match=r"up\.lock is a link"), Home(folder).exclusive():
        pass
    with pytest.raises(UntrustedPath, match=r"up\.lock is a link"):
        Home(folder).holder()
    (folder / ".status.json.new").symlink_to(victim)
    replace_file(folder / "status.json", b"status")
    os.link(victim, folder / ".status.json.new")  # or another name of it
    replace_file(folder / "status.json", b"newer")
    assert victim.read_bytes() == b"precious"
    assert (folder / "status.json").read_bytes() == b"newer"
    assert not (folder / "status.json").is_symlink()


@needs_root
def test_requests_of_others_are_not_executed(folder: Path) -> None:
    """A directory that everybody could write to, where somebody has made himself a place, and is then closed."""
    code = folder / "topology.py"
    code.write_text(f"open({str(folder / 'ran')!r}, 'w')\ntopology = None")
    data = folder / "cluster"
    data.mkdir()
    data.chmod(0o777)

    def prepare() -> None:
        (data / "requests").mkdir()

    as_nobody(prepare)
    data.chmod(0o755)
    with pytest.raises(UntrustedPath, match=r"requests has mode 0755 and belongs to nobody"):
        open_cluster(data)
    (data / "requests").rmdir()
    with Cluster(data, "words") as cluster:
        request = data / "requests" / "a.request"
        replace_file(folder / "request", Request("submit", {"name": "x", "file": str(code)}).dump())
        for plant in (lambda: request.symlink_to(folder / "request"), lambda: plant_foreign(request, folder)):
            plant()
            wait_for(lambda: not request.exists() and not request.is_symlink())
        Control(data).ask("deactivate", name="words")
        assert cluster.topologies["words"].commands
    assert not (folder / "ran").exists()


def plant_foreign(request: Path, folder: Path) -> None:
    new = folder / "foreign"
    new.write_bytes((folder / "request").read_bytes())
    os.chown(new, NOBODY, NOBODY)
    new.rename(request)


@needs_root
def test_files_that_others_have_left_are_not_read(folder: Path) -> None:
    """The directory was open to all once, and is closed now."""
    topic = Log(folder / "log").create("visits")
    topic.append(0, topic.batch([1], timestamps=[1]))
    Store(f"sqlite:///{folder}/views.db").close()
    (folder / "storm").mkdir()
    planted = [
        (topic.partition(0).folder / f"{0:020d}.arrow", lambda: Log(folder / "log").topic("visits")),
        (folder / "views.db-journal", lambda: Store(f"sqlite:///{folder}/views.db")),
        (folder / "master" / "manifests" / "step-000000.json", lambda: DOORS["an archive"](folder / "master")),
    ]
    for path, open_it in planted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.chown(path, NOBODY, NOBODY)
        with pytest.raises(UntrustedPath, match=f"{path.name} has mode .* belongs to nobody"):
            open_it()
        os.chown(path, 0, 0)


@needs_root
def test_a_system_of_another_user_gets_no_token_and_runs_no_app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "secret-token")
    ran = folder / "ran"
    data = folder / "data"
    data.mkdir()
    data.chmod(0o777)

    def plant() -> None:
        (data / "app.py").write_text(f"open({str(ran)!r}, 'w')")
        (data / "runs.json").write_text(json.dumps({"app": str(data / "app.py"), "store": "sqlite://", "log": "x"}))

    as_nobody(plant)
    data.chmod(0o755)
    with pytest.raises(UntrustedPath, match=r"runs.json has mode .* belongs to nobody"):
        client_of(Home(data)).status()
    assert not ran.exists()


@pytest.mark.parametrize(
    "command",
    [
        ["storm", "list", "--directory"],
        ["status", "--dir"],
        ["topic", "create", "visits", "--log"],
    ],
)
def test_commands_say_so_in_one_line(folder: Path, command: list[str]) -> None:
    folder.chmod(0o777)
    done = CliRunner().invoke(main, [*command, str(folder)])
    assert done.exit_code == 1
    assert f"{folder} has mode 0777" in done.stderr
    assert "Traceback" not in done.stderr
