"""Runs a file of continuous SQL as a system: a session, and a server by which statements arrive while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from headrace.dialects.sql.networkrules import check_from_network
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlfunctions import load_functions
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import parse_statements
from headrace.dialects.storm.cluster.control import Control
from headrace.engine.settings import Settings, using
from headrace.model.errors import HeadraceError
from headrace.model.times import SECOND, now
from headrace.server import Proxies, Service, Tokens
from headrace.server.process.childprocess import ServerProcess
from headrace.server.process.rpc import Client
from headrace.server.service import StatementOutcome
from headrace.system.lifecycle import Deployment, spark_of
from headrace.system.runs import Runs, error_of
from headrace.system.servedsql import ServedSql
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_time
from headrace.views.systemstatus import DeadLetterJson, JobStatus, SystemStatus

_log = logging.getLogger("headrace.system")

_LONGEST_WAIT: Final = 60  # seconds: for rows that were inserted, and until a pass that fails again is started again


class SqlSystem:
    """The operations of a session: its passes as pipelines, and statements that came over the network.

    `runs` are those of all pipelines of the process.
    """

    def __init__(self, session: SqlSession, runs: Runs, clock: Callable[[], int] = now) -> None:
        self._runs = runs
        self.session, self._clock, self._began = session, clock, clock()
        self._failures: dict[str, tuple[int, int]] = {}  # of passes: how many, and when the next start is due

    def execute(self, text: str) -> StatementOutcome:
        """Executes a statement that came over the network."""
        try:
            (statement,) = parse_statements(text)
            check_from_network(statement, self.session.catalog, self.session.functions.by_name)
            result = self.session.run(statement)
        except SqlError as error:
            return {"error": str(error), "line": error.line, "column": error.column}
        except (HeadraceError, RecursionError) as error:
            return {"error": str(error)}
        except DBAPIError as error:  # its message may name the host and the user of the database
            _log.error("the database refuses %r", text.strip()[:1_000], exc_info=error)
            return {"error": "the database refuses this; the log of the server says why"}
        if result.table is None:
            return {"message": result.message}
        rows = [[_plain(cell) for cell in row.values()] for row in result.table.to_pylist()]
        return {"columns": result.table.column_names, "rows": rows}

    def catch_up(self) -> None:
        """Waits until the views have all rows that are in their streams now."""
        try:
            self.session.catch_up(_LONGEST_WAIT)
        except HeadraceError as error:
            raise ViewError(str(error)) from None

    def poll(self) -> None:
        """Starts passes that have failed again, later each time."""
        for name, handle in self.session.passes().items():
            if handle.status().state != "failed":
                continue
            failures, due = self._failures.get(name, (0, 0))
            if self._clock() >= due:
                self._failures[name] = failures + 1, self._clock() + min(2**failures, _LONGEST_WAIT) * SECOND
                _log.error("the pass %r has failed and is started again: %s", name, error_of(handle))
                self.session.restart(name)

    def status(self) -> SystemStatus:
        """Returns the status of the passes."""
        passes = self.session.passes()
        runs = {name: self._runs.of(handle) for name, handle in passes.items()}
        return {
            "pid": os.getpid(),
            "started": encode_time(self._began),
            "now": encode_time(self._clock()),
            "topics": {},
            "views": {},
            "jobs": [],
            "pipelines": {name: run.status() for name, run in runs.items() if run is not None},
        }

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Refuses: views of SQL have no batch versions."""
        raise ViewError(f"{view!r} is a view of continuous SQL, which has no batch versions")

    def dead_letters(self, limit: int) -> list[DeadLetterJson]:
        """Returns the last bad record of each source."""
        return self._runs.dead_letters(limit)


def _plain(cell: Any) -> Any:
    """Returns a cell as JSON has it, or as text."""
    return cell if cell is None or isinstance(cell, str | int | float | bool) else str(cell)


def service_of(arguments: Mapping[str, Any], operations: Client) -> Service:
    """Makes the service of a session's server, in its process."""
    statements = ServedSql(Path(arguments["directory"]), arguments["database"], operations)
    topologies = Control(arguments["storm"]) if arguments["storm"] else None
    return Service({}, {}, operations, topologies=topologies, pipelines=True, statements=statements)


@contextmanager
def run_sql_system(
    deployment: Deployment, host: str, port: int, tokens: Tokens, proxies: Proxies = Proxies()
) -> Iterator[tuple[SqlSystem, ServerProcess]]:
    """Runs the session of a file of statements, and its server, in the `with` block."""
    text, home = deployment.app.read_text("utf-8"), deployment.home
    parse_statements(text)  # what is none leaves no directory behind
    if deployment.log is not None:
        raise ViewError("a stream of SQL says which topic it is: WITH (topic = 'kafka://HOST:PORT/NAME'); omit --log")
    if home.has_app():
        raise ViewError(f"{home.path} is the directory of an app in Python; use another one, with --dir")
    functions = [] if deployment.functions is None else load_functions(deployment.functions)
    runs = Runs()
    database = deployment.store or home.store
    with (
        home.exclusive() as lock,
        using(Settings(started=runs.add)),
        SqlSession(str(home.path), database=database, spark=spark_of(deployment), functions=functions) as session,
    ):
        session.declare(text)
        system = SqlSystem(session, runs)
        arguments = {
            "directory": str(home.path.absolute()),
            "database": database,
            "storm": "" if deployment.storm is None else str(deployment.storm.absolute()),
        }
        factory = f"{__name__}:{service_of.__name__}"
        with ServerProcess(factory, arguments, system, host=host, port=port, tokens=tokens, proxies=proxies) as server:
            lock.publish_url(server.url)
            yield system, server
