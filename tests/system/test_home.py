"""The directory of a system belongs to one process at a time, and is free when that ends, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.system.home import Home, SystemConfig
from headrace.views.errors import ViewError

HOLD = """
import sys, time
from pathlib import Path
from headrace.system.home import Home
with Home(Path(sys.argv[1])).exclusive() as lock:
    lock.publish_url("http://127.0.0.1:1")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        home = Home(tmp_path)
        refused = rf"belongs to process {first.pid}, at http://127.0.0.1:1: .* stop that"
        with pytest.raises(ViewError, match=refused), home.exclusive():
            pass
        holder = home.holder()
        assert holder is not None
        assert holder.pid == first.pid
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert home.holder() is None
        with home.exclusive():
            mine = home.holder()
            assert mine is not None
            assert mine.pid == os.getpid()
        assert home.holder() is None


def test_a_process_of_another_version_may_tell_more(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.exclusive():
        (tmp_path / "up.lock").write_text('{"pid": 7, "url": null, "version": "9.0"}')
        holder = home.holder()
    assert holder is not None
    assert (holder.pid, holder.url) == (7, None)


def test_the_configuration_is_saved_without_passwords(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.config() is None
    config = SystemConfig.of("/apps/app.py", "postgresql://ann:secret-word@db/views", str(tmp_path / "log"))
    home.save_config(config)
    assert home.config() == config
    assert not any(b"secret-word" in file.read_bytes() for file in tmp_path.iterdir())


def test_a_damaged_configuration_says_how_to_repair_it(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_bytes(b"\x80\x04cos\nsystem\n.")  # a pickle is read as what it is not: JSON
    with pytest.raises(ViewError, match=r"runs.json is damaged .*`headrace up` writes it again"):
        Home(tmp_path).config()
