"""A writer is killed again and again, in the middle of whatever it does; each event still counts once."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from headrace.views.query.queries import Query
from headrace.views.stores import Store
from tests.scale import FULL
from tests.views.stores.writer import HOUR, LAYOUT, counted

LIVES = 8 if FULL else 3


@pytest.mark.slow("processes are killed one after the other")
def test_a_writer_that_is_killed_loses_and_doubles_nothing(url: str) -> None:
    store = Store(url)
    view = store.view(LAYOUT)
    draw = random.Random(7)
    reached = 0
    for life in range(LIVES):
        command = [sys.executable, "-m", "tests.views.stores.writer", url, f"life {life}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(draw.randint(8, 30)):
                assert writer.stdout.readline()
            writer.kill()
        answer = view.answer(Query(limit=10_000))
        before, reached = reached, answer.provenance.reached[0]
        assert reached > before
        found = {(row.key["page"], row.window.start // HOUR): row.values["n"] for row in answer.rows}
        assert found == counted(0, reached)
    store.close()
