"""The examples' topologies, on the driver in memory: what they promise."""

from __future__ import annotations

import runpy
from collections import Counter
from typing import Any

import storm_exclamation
import storm_fraud
import storm_top_words
import storm_wordcount

from headrace import storm
from tests.dialects.storm.driver import Driver

SECOND = 1_000_000


def written(driver: Driver) -> list[dict[str, Any]]:
    return [row for bolt in driver.instances("out") for row in bolt.rows]


def test_words_are_counted() -> None:
    driver = Driver(storm_wordcount.build("log"))
    driver.batch({"spout": [[sentence] for sentence in storm_wordcount.SENTENCES * 3]})
    counts = {row["word"]: row["count"] for row in written(driver)}
    assert counts == Counter(" ".join(storm_wordcount.SENTENCES * 3).split())


def test_hi_is_exclaimed_once_and_twice() -> None:
    driver = Driver(storm_exclamation.build("log"))
    driver.batch({"words": [["Hi"]]})
    assert sorted(row["word"] for row in written(driver)) == ["Hi!", "Hi!!"]


def test_the_top_words_are_those_of_the_last_slots() -> None:
    driver = Driver(storm_top_words.build("log"))
    driver.batch({"words": []}, now=0)
    driver.batch({"words": [["corn"]] * 5 + [["mill"]] * 3 + [["race"]] + [["stone"]] * 2}, now=SECOND)
    driver.batch({"words": []}, now=3 * SECOND)  # counts are told,
    driver.batch({"words": []}, now=6 * SECOND)  # ranked,
    driver.batch({"words": []}, now=9 * SECOND)  # and merged
    assert written(driver)[-1]["ranks"] == [("corn", 5), ("mill", 3), ("stone", 2)]


def test_machines_are_suspects_once_and_pay_for_no_more_than_people() -> None:
    driver = Driver(storm_fraud.build("log"))
    driver.batch({"views": [[1, 7]] * 150 + [[2, 7]] * 30 + [[2, 8]]})
    assert written(driver) == [{"user": 1, "advertiser": 7}]
    charged: Counter[int] = Counter()
    for bolt in driver.instances("charge"):
        charged.update(bolt.charged)
    assert charged == {7: 130, 8: 1}


def test_views_come_in_bursts() -> None:
    due = storm_fraud.Views.due
    assert due(20) - due(0) == 20 * storm_fraud.CALM + 2 * (storm_fraud.BURST - storm_fraud.CALM)
    assert due(4.5) - due(3.5) == storm_fraud.BURST
    assert due(1) == storm_fraud.CALM


def test_a_file_with_a_topology_can_be_submitted() -> None:
    names = runpy.run_path(storm_wordcount.__file__, run_name="headrace_topology")
    assert isinstance(names["topology"], storm.Topology)
