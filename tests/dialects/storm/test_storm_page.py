"""The page for those who come from Storm: its Python works as it stands there, but for a cluster, which is not one."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from storm_wordcount import SENTENCES, RandomSentence

from headrace import storm
from tests.dialects.storm.driver import Driver
from tests.test_docs import lines_by_block

PAGE = Path(__file__).parents[3] / "docs" / "storm.md"


class RecordingCluster:
    """Takes topologies as a cluster does, and runs none."""

    def __init__(self, directory: str) -> None:
        self.submitted: dict[str, tuple[storm.Topology, storm.Config]] = {}

    def __enter__(self) -> RecordingCluster:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def submit(self, name: str, topology: storm.Topology, config: storm.Config) -> None:
        self.submitted[name] = topology, config


def plain_python(page: str) -> str:
    """The Python of the page that is not shown as a session."""
    lines = [line if language == "python" else "" for language, line in lines_by_block(page)]
    blocks = "\n".join(lines).split("\n\n\n")
    return "\n".join(block for block in blocks if ">>> " not in block)


def test_the_word_count_of_the_page_counts() -> None:
    names: dict[str, Any] = {
        "storm": SimpleNamespace(**{**vars(storm), "LocalCluster": RecordingCluster}),
        "RandomSentence": RandomSentence,
    }
    exec(compile(textwrap.dedent(plain_python(PAGE.read_text("utf-8"))), str(PAGE), "exec"), names)
    topology, config = names["cluster"].submitted["word-count"]
    assert [(node.id, node.tasks) for node in topology.nodes] == [("spout", 5), ("split", 8), ("count", 12)]
    assert (config.message_timeout, config.max_spout_pending) == (30_000_000, 1000)
    driver = Driver(topology, config)
    ended = driver.batch({"spout": [[sentence] for sentence in SENTENCES]})
    assert len(ended) == len(SENTENCES)
    counts: Counter[str] = Counter()
    for task in driver.instances("count"):
        counts.update(task.counts)
    assert counts == Counter(" ".join(SENTENCES).split())
