"""Starts a PostgreSQL server for the suite, on loopback, when a test asks for it, and removes it with the suite.

Its programs are those of the machine (Debian's `postgresql`) or of PyPI's `pgserver`. Without them, tests are skipped;
HEADRACE_REQUIRE=postgresql makes them fail instead.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.ports import free_port

PASSWORD = secrets.token_hex(8)
# The shell ends with its input, so a suite that is killed leaves no process and no files. A line restarts the server.
_SERVE = """
"$1/initdb" -D "$2/data" -E UTF8 --locale=C -U amy --auth=scram-sha-256 --pwfile="$2/password" > "$2/output" 2>&1 &&
"$1/pg_ctl" -D "$2/data" -w -l "$2/log" -o "$3" start >> "$2/output" 2>&1 && echo ready || echo failed
while read -r _; do
    "$1/pg_ctl" -D "$2/data" -w -m immediate stop >> "$2/output" 2>&1
    "$1/pg_ctl" -D "$2/data" -w -l "$2/log" -o "$3" start >> "$2/output" 2>&1 && echo ready || echo failed
done
"$1/pg_ctl" -D "$2/data" -w -m immediate stop > /dev/null 2>&1
rm -rf "$2"
"""


class Server:
    """A running server. Its URL has the password of its only user."""

    def __init__(self, url: str, process: subprocess.Popen[str], output: Path) -> None:
        self.url, self._process, self._output = url, process, output
        self._await_ready()

    def restart(self) -> None:
        """Kills the server, with all of its connections, and starts it again: it recovers what was committed."""
        assert self._process.stdin is not None
        self._process.stdin.write("restart\n")
        self._process.stdin.flush()
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer == "ready\n", self._output.read_text()


@contextmanager
def running() -> Iterator[str]:
    """Starts a new, empty database cluster; yields its URL, with the password of its only user."""
    with serving() as server:
        yield server.url


@contextmanager
def serving() -> Iterator[Server]:
    """Starts a new, empty database cluster, which can be restarted."""
    programs = _programs()
    if programs is None:
        reason = "there is no PostgreSQL here: apt-get install postgresql, or pip install pgserver"
        if "postgresql" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
    if os.geteuid() == 0 and "pgserver" in programs.parts:  # a directory of root's, which the server may not read
        for each in programs.parents[2].glob("pgserver*"):
            if not each.name.endswith("-info"):
                shutil.copytree(each, folder / each.name)
        programs = folder / programs.relative_to(programs.parents[2])
    (folder / "password").write_text(PASSWORD)
    for each in (folder, *folder.rglob("*")):
        shutil.chown(each, user)
    port = free_port()
    settings = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories= -c fsync=off"
    server = subprocess.Popen(
        ["sh", "-c", _SERVE, "sh", programs, folder, settings],
        cwd="/",
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **({"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}),
    )
    assert server.stdin is not None
    try:
        yield Server(f"postgresql://amy:{PASSWORD}@127.0.0.1:{port}/postgres", server, folder / "output")
    finally:
        server.stdin.close()
        server.wait(60)


def empty(server: str, name: str) -> str:
    """Creates an empty database of this name, in place of an earlier one; returns its URL."""
    with administering(server) as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    return f"{server.rpartition('/')[0]}/{name}"


@contextmanager
def administering(server: str) -> Iterator[sa.Connection]:
    """Opens a connection for statements about databases."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _programs() -> Path | None:
    """Returns the directory of initdb and pg_ctl."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda name: int(name.split("/")[-2]), reverse=True)
    if (program := shutil.which("pg_ctl")) is not None:
        folders.append(str(Path(program).parent))
    if (package := importlib.util.find_spec("pgserver")) is not None and package.origin is not None:
        folders.append(str(Path(package.origin).parent / "pginstall" / "bin"))
    return next((Path(folder) for folder in folders if Path(folder, "initdb").exists()), None)


def _user() -> str:
    """Returns the user that the server runs as, which must not be root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
