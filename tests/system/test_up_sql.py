"""`headrace up app.sql` as a process of its own: statements arrive over HTTP and from the shell, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from headrace.commands.main import main
from tests.scale import only_full

SECONDS = 240  # a loaded machine is no reason to fail
APP = """
CREATE STREAM trades (symbol text, price double, size bigint, at timestamp,
                      WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (partitions = 2);
CREATE VIEW totals AS SELECT symbol, count(*) AS n, sum(size) AS sold FROM trades GROUP BY symbol;
"""


@contextmanager
def up(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The process, and a client of its server."""
    command = [sys.executable, "-m", "headrace", "up", "app.sql", "--port", "0", "--dir", "data"]
    with subprocess.Popen(
        [*command, "--master", "local[2]", *options], cwd=folder, env=os.environ, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if (found := re.search(r"served at (\S+);", line)) is not None:
                    break
            else:
                raise AssertionError("".join(lines))
            with httpx.Client(base_url=found[1], timeout=SECONDS) as client:
                yield process, client
        finally:
            if process.poll() is None:
                process.kill()


def execute(client: httpx.Client, text: str, *, wait: bool = False) -> list[dict[str, Any]]:
    answer = client.post("/sql/statements", json={"text": text, "wait": wait})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0


def sql(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["sql", "--home", str(folder / "data"), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@only_full("`up` has a test, and statements over HTTP and from the page have theirs")
@pytest.mark.slow("two processes with a Spark of their own, one after the other")
@pytest.mark.timeout(600)
def test_up_statements_from_everywhere_stop_and_up_again(tmp_path: Path) -> None:
    file = tmp_path / "app.sql"
    file.write_text(APP)
    with up(tmp_path) as (process, client):
        assert execute(client, "SHOW STREAMS; SHOW VIEWS") == [
            {"columns": ["stream"], "rows": [["trades"]], "truncated": False},
            {"columns": ["view", "state", "failed_rows"], "rows": [["totals", "running", 0]], "truncated": False},
        ]
        inserted, rows = execute(
            client,
            "INSERT INTO trades VALUES ('IBM', 2.5, 3, '2026-01-31T12:00:01Z'), ('SAP', 1, 5, '2026-01-31T12:00:02Z');"
            "SELECT * FROM totals ORDER BY symbol",
            wait=True,
        )
        assert inserted == {"message": "inserted 2"}
        assert rows == {
            "columns": ["symbol", "n", "sold"],
            "rows": [["IBM", 1, 3], ["SAP", 1, 5]],
            "truncated": False,
        }

        # A view that comes while it runs, from the shell, which finds the system by its directory.
        created = sql(
            tmp_path, "-c", "CREATE VIEW high AS SELECT symbol, max(price) AS top FROM trades GROUP BY symbol"
        )
        assert created == "created the view high\n"
        shown = sql(
            tmp_path,
            "-c",
            "INSERT INTO trades VALUES ('IBM', 7, 1, '2026-01-31T12:00:03Z')",
            "-c",
            "SELECT top FROM high",
        )
        assert "inserted 1" in shown and "7" in shown
        catalog = client.get("/sql/catalog").json()
        assert [view["name"] for view in catalog["views"]] == ["totals", "high"]
        assert catalog["streams"][0]["columns"] == {
            "symbol": "string",
            "price": "double",
            "size": "bigint",
            "at": "timestamp",
        }
        pipelines = client.get("/status").json()["pipelines"]
        assert {each["state"] for each in pipelines.values()} == {"running"}
        wrong = client.post("/sql/statements", json={"text": "SHOW VIEWS;\nDROP VIEW hihg"})
        assert (wrong.status_code, wrong.json()["done"]) == (422, 1)
        assert "did you mean 'high'?" in wrong.json()["reason"]
        refused = client.post(
            "/sql/statements",
            json={"text": "CREATE VIEW v AS\nSELECT reflect('java.lang.System', 'exit', 1) AS x FROM trades"},
        )
        assert (refused.status_code, refused.json()["line"], refused.json()["column"]) == (422, 2, 8)
        stop(process)

    with up(tmp_path) as (process, client):  # the file is the same, and the view from the shell goes on, too
        execute(client, "INSERT INTO trades VALUES ('IBM', 9, 1, '2026-01-31T12:00:04Z')")
        (rows,) = execute(
            client, "SELECT n, sold, top FROM totals JOIN high USING (symbol) WHERE symbol = 'IBM'", wait=True
        )
        assert rows["rows"] == [[3, 5, 9.0]]
        stop(process)

    file.write_text(APP.replace("sum(size)", "max(size)"))
    changed = subprocess.run(
        [sys.executable, "-m", "headrace", "up", "app.sql", "--port", "0", "--dir", "data", "--master", "local[2]"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert changed.returncode == 1
    assert "totals is there with another definition" in changed.stderr and "DROP VIEW totals" in changed.stderr
