"""The command `headrace sql`, with statements that need no Spark: from options, a file, a pipe and the prompt."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.commands import sqlshell
from headrace.commands.main import main
from headrace.dialects.sql.sqlsession import SqlSession

STREAM = "CREATE STREAM hits (url text, n bigint);"


def run(*arguments: str, given: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["sql", *arguments], input=given)
    return result.exit_code, result.output


def test_options_files_and_pipes(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path / "home"))
    script = tmp_path / "app.sql"
    script.write_text(f"{STREAM}\nINSERT INTO hits VALUES ('/', 1), (NULL, 2);")
    assert run(str(script), *home) == (0, "created the stream hits\ninserted 2\n")
    assert run(*home, given="INSERT INTO hits (n) VALUES (3); SHOW STREAMS")[1].splitlines()[0] == "inserted 1"
    code, output = run(*home, "-c", "SHOW STREAMS", "-c", "DROP STREAM hist")
    assert (code, "hits" in output, "did you mean 'hits'?" in output) == (1, True, True)
    assert "No such file" in run(str(tmp_path / "none.sql"), *home)[1]
    copy = "COPY hits FROM STDIN (FORMAT csv)"
    assert run(*home, "-c", copy, given="/,1\n/a,2\n") == (0, "copied 2\n")
    assert "there is no standard input here" in run(*home, given=copy)[1]


def test_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([STREAM[:20], STREAM[20:], "", r"\d", r"\d hits", "SHOW VIEW;", r"\?", r"\q", "never read"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    written = StringIO()
    with SqlSession(str(tmp_path / "home")) as session:
        sqlshell._prompt(session, Console(file=written, width=100))
    shown = written.getvalue()
    assert "created the stream hits" in shown and "bigint" in shown
    assert "SHOW is followed by STREAMS, TABLES, VIEWS or TRANSFORMS" in shown and "the columns of one" in shown
    assert next(lines) == "never read"


def test_numbers_are_to_the_right_and_nulls_are_blank() -> None:
    table = sqlshell.as_table(pa.table({"name": ["a", None], "n": [1, 20]}))
    console = Console(file=StringIO(), width=40)
    console.print(table)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()][2:] == [  # type: ignore[attr-defined]
        "a    │  1",
        "     │ 20",
    ]
