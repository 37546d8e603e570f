"""The command line: what it prints, where, and with which exit code. Pipelines run on the suite's session."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner, Result

import headrace as hr
from headrace.commands import main as cli
from headrace.commands.progressbar import watch
from headrace.engine.handle import ExchangeStatus, Handle, Status, StreamStatus
from headrace.engine.settings import Settings, current, using
from tests.ports import free_port


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli.main, list(args))


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(*lines: str) -> str:
        path = tmp_path / "script.py"
        path.write_text("\n".join(["import sys", "import headrace as hr", *lines]))
        return str(path)

    return write


DOUBLE = (
    "with hr.Pipeline() as p:",
    "    doubled = p | hr.Create([1, 2]) | 'double' >> hr.Map(lambda x: 2 * x) | hr.Collect()",
)


def test_version() -> None:
    for args in (["version"], ["--version"]):
        assert (invoke(*args).stdout, invoke(*args).exit_code) == (f"headrace {hr.__version__}\n", 0)


def test_shells_complete_the_commands() -> None:
    environment = {**os.environ, "_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": "headrace st", "COMP_CWORD": "1"}
    command = [Path(sys.executable).with_name("headrace")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["status", "storm"]
    assert "--install-completion" in invoke("--help").stdout


def test_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "headrace", "version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"headrace {hr.__version__}\n"


def test_run(script: Any, spark: SparkSession) -> None:
    result = invoke("run", script(*DOUBLE, "print(sorted(doubled), __name__)"))
    assert (result.stdout, result.exit_code) == ("[2, 4] __main__\n", 0)


WATCHED = (
    "import json, re, urllib.request",
    "def get(path): return urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}{path}').read().decode()",
    "def count(n): return hr.metrics.counter('seen').inc() or n",
    "with hr.Pipeline() as p:",
    "    p | hr.Create([1, 2]) | 'count' >> hr.Map(count) | hr.Collect()",
    "status = json.loads(get('/status'))",
    "print([(run['kind'], run['state'], run['metrics'][0]['value']) for run in status['pipelines'].values()])",
    "print(re.search('headrace_metric_counter_total{.*', get('/metrics'))[0], status['over'])",
    "print('<title>Headrace</title>' in get('/'))",
)


@pytest.mark.slow("the process of a server")
def test_run_serves_a_page_and_metrics_while_the_script_runs(
    script: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_FAREWELL", 0)
    port = free_port()
    path = script(*WATCHED, "raise hr.PipelineError('and so it ends')")
    result = invoke("run", "--ui", "--ui-port", str(port), path, str(port))
    assert result.stdout.splitlines() == [
        "[('batch', 'done', 2)]",
        'headrace_metric_counter_total{name="seen",pipeline="1: script.py:7",transform="count"} 2.0 False',
        "True",
    ]
    assert f"the pipelines of {path} are at http://127.0.0.1:{port}" in result.stderr
    assert result.stderr.endswith("and so it ends\n") and result.exit_code == 1
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")


def test_the_page_of_a_run_listens_on_loopback_only_without_tokens(script: Any) -> None:
    result = invoke("run", "--ui", "--ui-host", "0.0.0.0", script("print('runs')"))
    assert (result.stdout, result.exit_code) == ("", 1)
    assert "0.0.0.0 can be reached from other machines" in result.stderr


def test_run_gives_the_script_its_arguments(script: Any) -> None:
    path = script("print(sys.argv)")
    assert invoke("run", path, "a", "--b", "-c", "1").stdout == f"{[path, 'a', '--b', '-c', '1']}\n"
    assert invoke("run", path, "--", "--explain").stdout == f"{[path, '--explain']}\n"


def test_run_finds_modules_beside_the_script(script: Any, tmp_path: Path) -> None:
    (tmp_path / "beside_the_script.py").write_text("HERE = 'here'")
    assert invoke("run", script("from beside_the_script import HERE", "print(HERE)")).stdout == "here\n"
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("after", [False, True])
def test_explain_shows_every_pipeline_and_runs_none(script: Any, after: bool) -> None:
    other = ("p = hr.Pipeline()", "p | hr.Create([1]) | 'fail' >> hr.ForEach(lambda x: 1 / 0)", "p.run().wait()")
    path = script(*DOUBLE, *other)
    result = invoke("run", path, "--explain") if after else invoke("run", "--explain", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "write  Collect",
        "└─ python  double",
        "   └─ read  Create(2 elements)",
        "",
        "python  fail",
        "└─ read  Create(1 elements)",
    ]


def test_explained_script_ends_where_it_needs_results(script: Any) -> None:
    result = invoke("run", "--explain", script(*DOUBLE, "print(len(doubled))", "print('never')"))
    assert result.exit_code == 0
    assert "never" not in result.stdout
    assert "The script ends here, since pipelines have no results with --explain: RuntimeError: " in result.stderr


def test_handle_of_an_explained_pipeline_has_stopped() -> None:
    handle = cli.NotRunHandle()
    handle.stop()
    assert (handle.wait().state, handle.wait(1).state, handle.metrics()) == ("stopped", "stopped", {})


@pytest.mark.parametrize("flag", [[], ["--explain"]])
def test_wrong_pipeline_is_told_plainly(script: Any, flag: list[str]) -> None:
    result = invoke("run", *flag, script("hr.Pipeline().run()"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the pipeline is empty: ")
    assert "Traceback" not in result.stderr


def test_failing_function_is_told_plainly(script: Any, spark: SparkSession) -> None:
    lines = ("with hr.Pipeline() as p:", "    p | hr.Create([0]) | 'invert' >> hr.Map(lambda x: 1 / x)")
    result = invoke("run", script(*lines))
    assert result.exit_code == 1
    first, *trace = result.stderr.splitlines()
    assert first == "error: 'invert' failed on the element 0: ZeroDivisionError: division by zero"
    assert len(trace) <= 24
    assert not [line for line in trace if "headrace/" in line]


def test_a_source_of_bad_records_only_fails_the_run(script: Any, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,name\n1,amy\nx,bob\n")
    read = f"    rows = p | 'rows' >> hr.ReadCsv({str(tmp_path / 'in.csv')!r}, schema=SCHEMA)"
    lines = ("with hr.Pipeline() as p:", read, "    rows | hr.Collect()")
    some = invoke("run", script(*(line.replace("SCHEMA", "'id long, name string'") for line in lines)))
    assert (some.exit_code, some.stderr.startswith("1 of 2 records of 'rows' was refused (wrong type: 1)")) == (0, True)
    none = invoke("run", script(*(line.replace("SCHEMA", "'id long'") for line in lines)))
    assert none.exit_code == 1
    assert "2 of 2 records of 'rows' were refused (malformed: 2), the last because" in none.stderr
    assert len(none.stderr.splitlines()) == 1


def test_missing_script_is_named() -> None:
    result = invoke("run", "nowhere.py")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: there is no file 'nowhere.py'; pass the path of a Python script\n",
    )


def test_failing_script_gets_its_own_traceback_only(script: Any) -> None:
    path = script("def f():", "    return 1 / 0", "f()")
    result = invoke("run", path)
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("  File ")] == [
        f'  File "{path}", line 5, in <module>',
        f'  File "{path}", line 4, in f',
    ]


def test_script_with_a_syntax_error_is_no_failure_of_ours(script: Any) -> None:
    result = invoke("run", script("def f(:"))
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr
    assert "commands/main.py" not in result.stderr


def test_exit_code_of_the_script_is_kept(script: Any) -> None:
    assert invoke("run", script("sys.exit(3)")).exit_code == 3


def test_interrupt(script: Any) -> None:
    result = invoke("run", script("raise KeyboardInterrupt"))
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


def test_master_is_told_by_option_or_environment(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_MASTER", "local[3]")  # and back again
    path = script("import os", "print(os.environ['SPARK_MASTER'])")
    assert invoke("run", path).stdout == "local[3]\n"
    assert invoke("run", "--master", "local[1]", path).stdout == "local[1]\n"
    assert os.environ["SPARK_MASTER"] == "local[1]"


def test_settings_end_with_their_block() -> None:
    with using(Settings(watch=watch)):
        assert current().watch is watch
    assert current() == Settings()


class Running:
    """A pipeline that is done when it was asked a few times."""

    def __init__(self, *statuses: Status | BaseException) -> None:
        self.statuses = list(statuses)
        self.stopped = False

    def wait(self, timeout: float | None = None) -> Status:
        assert timeout is not None
        status = self.statuses.pop(0)
        if isinstance(status, BaseException):
            raise status
        return status

    def stop(self, *, drain: bool = False) -> None:
        self.stopped = True

    def status(self) -> Status:
        raise NotImplementedError

    def metrics(self) -> dict[str, dict[str, int]]:
        raise NotImplementedError

    def savepoint(self, path: str) -> None:
        raise NotImplementedError


def shown(handle: Handle, *, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    assert watch(handle, console).state == "done"
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_progress_is_shown_on_a_terminal_only() -> None:
    statuses = [Status("running"), Status("running", "write  WriteText('out')", 3, 8), Status("done")]
    text = shown(Running(*statuses), terminal=True)
    assert "write  WriteText('out')" in text
    assert "3/8" in text
    assert shown(Running(*statuses), terminal=False) == ""


def test_a_stream_is_shown_as_a_line() -> None:
    status = StreamStatus("running", batches=3, batch_seconds=0.4, exchanges={"sums": ExchangeStatus(held=7)})
    text = shown(Running(status, StreamStatus("done")), terminal=True)
    assert "3 batches · 0.40 s · 7 windows held" in text
    assert "tasks" not in text


def test_stage_names_are_not_markup() -> None:
    assert "read [x]" in shown(Running(Status("running", "read [x]", 0, 1), Status("done")), terminal=True)


def test_interrupted_progress_stops_the_pipeline() -> None:
    handle = Running(Status("running"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        watch(handle, Console(file=io.StringIO()))
    assert handle.stopped


def test_waiting_without_a_limit_is_watching(spark: SparkSession) -> None:
    watched: list[Handle] = []

    def note(handle: Handle) -> Status:
        watched.append(handle)
        return watch(handle, Console(file=io.StringIO()))

    with using(Settings(watch=note)), hr.Pipeline() as p:
        found = p | hr.Create([1]) | hr.Collect()
    assert list(found) == [1]
    assert len(watched) == 1


def test_the_commands_are_listed_without_importing_what_they_run() -> None:
    """Or `headrace --help`, and the completion of a shell, would take seconds."""
    heavy = ["pandas", "pyspark", "sqlalchemy", "headrace.server", "headrace.system", "headrace.dialects.storm"]
    script = f"import sys, headrace.commands.main; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
