"""A PostgreSQL of the suite's own: started when a test asks for one, on loopback, and gone with the suite.

Its programs are those of the machine (Debian's `postgresql`) or of PyPI's `pgserver`. Where there are none, tests are
skipped with that reason; HEADRACE_REQUIRE=postgresql makes them fail instead.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = secrets.token_hex(8)


@contextmanager
def running() -> Iterator[str]:
    """The URL of a new, empty database cluster, with the password of its only user."""
    programs = _programs()
    if programs is None:
        reason = "there is no PostgreSQL here: apt-get install postgresql, or pip install pgserver"
        if "postgresql" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
    try:
        if os.geteuid() == 0 and "pgserver" in programs.parts:  # a folder of root's, which the server may not read
            for each in programs.parents[2].glob("pgserver*"):
                if not each.name.endswith("-info"):
                    shutil.copytree(each, folder / each.name)
            programs = folder / programs.relative_to(programs.parents[2])
        (folder / "password").write_text(PASSWORD)
        shutil.chown(folder, user)
        shutil.chown(folder / "password", user)
        data, port = folder / "data", _free_port()
        settings = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories= -c fsync=off"
        login = ["-U", "amy", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
        _run(user, programs / "initdb", "-D", data, "-E", "UTF8", "--locale=C", *login)
        _run(user, programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
        try:
            yield f"postgresql://amy:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            _run(user, programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda name: int(name.split("/")[-2]), reverse=True)
    if (found := shutil.which("pg_ctl")) is not None:
        folders.append(str(Path(found).parent))
    if (package := importlib.util.find_spec("pgserver")) is not None and package.origin is not None:
        folders.append(str(Path(package.origin).parent / "pginstall" / "bin"))
    return next((Path(folder) for folder in folders if Path(folder, "initdb").exists()), None)


def _user() -> str:
    """Whom the server runs as, which must not be root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(user: str, *command: str | Path) -> None:
    other = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryFile() as out:  # not a pipe, which the server would hold open
        done = subprocess.run(
            [*map(str, command)],
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=120,
            **other,  # type: ignore[arg-type]
        )
        out.seek(0)
        assert done.returncode == 0, out.read().decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
