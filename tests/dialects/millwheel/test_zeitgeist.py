"""The example Zeitgeist: finds the spikes and dips of what it makes up, and no others."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import zeitgeist

from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_models_find_what_was_hidden() -> None:
    searches = zeitgeist.Searches(400, 24)
    found = {}
    for query in range(searches.queries):
        model = zeitgeist.Model()
        for second in range(searches.seconds):
            count = searches.count(query, second)
            if model.seen >= zeitgeist.LEARNING and not 0.5 * model.level <= count <= 2 * model.level:
                found[query, second] = "spike" if count > model.level else "dip"
            else:
                model.learn(count)
    assert found == searches.events


@only_full("its models find the same without Spark")
def test_so_do_its_computations(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    searches = zeitgeist.Searches(40, 14)
    anomalies, windows = zeitgeist.run(searches, tmp_path / "mill", spark)
    found = {(int(each["query"].split()[1]), each["second"]): each["kind"] for each in anomalies}
    assert (found, len(anomalies)) == (searches.events, 2)
    assert len(windows) == 40 * 14
    zeitgeist.draw(windows, anomalies, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("<circle") == 4
