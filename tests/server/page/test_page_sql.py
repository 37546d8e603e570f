"""The SQL tab of the page in a real browser: what is typed is executed, results are kept up to date, names are text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headrace.dialects.sql.sqlsession import SqlSession
from headrace.server import Server, Service, Tokens
from headrace.system.runs import Runs
from headrace.system.servedsql import ServedSql
from headrace.system.sqlsystem import SqlSystem
from tests.server.browsers import looking
from tests.server.page.test_page import ADMIN, LIMITS, READ, SCRIPT, rows
from tests.server.routes.test_continuoussql import STREAM, add_view


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession(str(tmp_path / "home")) as session:
        session.execute(STREAM)
        add_view(session, [("IBM", 3), (SCRIPT, 5)])
        yield session


def service_of(session: SqlSession, tmp_path: Path) -> Service:
    home, system = tmp_path / "home", SqlSystem(session, Runs())
    statements = ServedSql(home, f"sqlite:///{home}/views.db", system)
    return Service({}, {}, system, pipelines=True, statements=statements)


def execute(page: Page, text: str) -> None:
    """Replaces what is in the editor, and executes it."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    expect(page.locator(".cm-content")).to_have_text(text.replace("\n", ""))
    page.keyboard.press("Control+Enter")


@pytest.mark.slow("a page in a browser")
def test_statements_are_typed_and_results_are_kept_up_to_date(
    browser: BrowserContext, port: int, session: SqlSession, tmp_path: Path
) -> None:
    with (
        Server(service_of(session, tmp_path), port=port, limits=LIMITS, page=True) as server,
        looking(browser, server.url) as page,
    ):
        tabs = page.get_by_role("tab").all_inner_texts()
        assert tabs == ["terminal\nSQL", "account_tree\nPipelines", "report\nDead letters"]
        expect(page.locator('[data-name="objects"] tbody tr')).to_have_count(2)
        assert rows(page, "objects") == [
            ["trades", "stream", "symbol string, price double, size bigint, at timestamp"],
            ["totals", "view", "symbol string, n bigint"],
        ]
        result = page.locator('[data-name="result"] tbody tr')
        execute(page, "SELECT symbol, n FROM totals ORDER BY n")
        expect(result).to_have_text(["IBM3", f"{SCRIPT}5"])
        expect(page.locator(".cm-content span").first).to_be_visible()  # keywords are marked
        expect(page.locator('[data-name="plot"] svg')).to_be_visible()
        with session._tables._engine.begin() as connection:
            connection.exec_driver_sql("UPDATE totals SET n = 1234 WHERE symbol = 'IBM'")
        expect(result).to_have_text([f"{SCRIPT}5", "IBM1,234"])

        execute(page, "INSERT INTO trades (symbol) VALUES ('SAP'); CREATE STREAM quotes (bid double)")
        expect(page.locator('[data-name="messages"]')).to_have_text("inserted 1\ncreated the stream quotes")
        expect(page.locator('[data-name="objects"] tbody tr')).to_have_count(3)

        execute(page, "SELECT * FRM totals")
        expect(page.locator('[data-name="error"]')).to_contain_text("line 1, column")
        execute(page, "SHOW VIEWS")
        expect(page.locator('[data-name="error"]')).to_be_hidden()
        expect(result).to_have_text(["totalsrunning0"])


@pytest.mark.slow("a page in a browser")
def test_who_may_only_read_executes_nothing(
    browser: BrowserContext, port: int, session: SqlSession, tmp_path: Path
) -> None:
    tokens = Tokens.parse(f"read:{READ} admin:{ADMIN}")
    with (
        Server(service_of(session, tmp_path), port=port, limits=LIMITS, page=True, tokens=tokens) as server,
        looking(browser, f"{server.url}/login") as page,
    ):
        page.get_by_label("Token").fill(READ)
        with page.expect_navigation():
            page.get_by_role("button", name="Sign in").click()
        execute(page, "DROP VIEW totals")
        expect(page.get_by_text("This needs a token for admin")).to_be_visible()
        assert list(session.catalog.views) == ["totals"]
