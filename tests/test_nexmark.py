"""Nexmark's events are those of their seed and number, and its queries give the answers of a recount."""

from __future__ import annotations

import doctest
import importlib
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import nexmark.events
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nexmark import columns, functions
from nexmark.events import AUCTION, BID, LONGEST, PERSON, STEP, Events
from pyspark.sql import SparkSession

import headrace as hr
from tests.scale import FULL, examples

KINDS = ("persons", "auctions", "bids")
BENCH = Path(__file__).parent.parent / "bench"


def test_the_examples_of_the_generator() -> None:
    assert doctest.testmod(nexmark.events).failed == 0


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    events = Events()
    assert [getattr(events, kind)(0, 50_000).num_rows for kind in KINDS] == [1_000, 3_000, 46_000]
    # Every event is of one kind, at a time of its own.
    times = pa.concat_arrays([getattr(events, kind)(130, 1_130)["date_time"].combine_chunks() for kind in KINDS])
    assert pc.count_distinct(times).as_py() == 1_000
    assert pc.subtract(pc.max(times).cast(pa.int64()), pc.min(times).cast(pa.int64())).as_py() == 999 * STEP


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**63),
    cuts=st.lists(st.integers(0, 5_000), min_size=2, max_size=5).map(sorted),
)
@examples(50)
def test_a_range_is_the_same_in_whatever_pieces_it_is_made(kind: str, seed: int, cuts: list[int]) -> None:
    make = getattr(Events(seed), kind)
    pieces = [make(first, last) for first, last in itertools.pairwise(cuts)]
    assert pa.concat_tables(pieces).equals(make(cuts[0], cuts[-1]))


def test_another_seed_gives_other_events() -> None:
    one, other = Events(1).bids(0, 5_000), Events(2).bids(0, 5_000)
    for column in ("auction", "bidder", "price", "channel", "url", "extra"):
        assert not one[column].equals(other[column]), column
    assert one["date_time"].equals(other["date_time"])


@pytest.mark.parametrize("first", [0, 123_450])
def test_ids_name_what_has_come_before(first: int) -> None:
    events, last = Events(), first + 20_000
    persons, auctions, bids = (getattr(events, kind)(0, last) for kind in KINDS)
    assert (persons.schema, auctions.schema, bids.schema) == (PERSON, AUCTION, BID)
    for table, column, named in ((auctions, "seller", persons), (bids, "bidder", persons), (bids, "auction", auctions)):
        came = dict(zip(named["id"].to_pylist(), named["date_time"].cast(pa.int64()).to_pylist(), strict=True))
        assert len(came) == named.num_rows, "ids are unique"
        recent = table.slice(table.num_rows - 1_000)
        for name, time in zip(
            recent[column].to_pylist(), recent["date_time"].cast(pa.int64()).to_pylist(), strict=True
        ):
            assert came[name] < time


def test_values_are_in_their_ranges() -> None:
    auctions, bids = Events().auctions(0, 100_000), Events().bids(0, 100_000)
    lowest, highest = pc.min_max(bids["price"]).as_py().values()
    assert 100 <= lowest < 110 and 9 * 10**7 < highest <= 10**8
    assert set(auctions["category"].to_pylist()) == {10, 11, 12, 13, 14}
    open_for = pc.subtract(auctions["expires"].cast(pa.int64()), auctions["date_time"].cast(pa.int64()))
    least, greatest = pc.min_max(open_for).as_py().values()
    assert least > 0 and greatest <= LONGEST
    hot = pc.value_counts(bids["auction"].slice(80_000, 1_000))
    assert max(each["counts"] for each in hot.to_pylist()) > 300, "half of the bids are for one in a hundred auctions"


class Query(hr.PTransform):
    """A query under a label of its own, over collections by kind."""

    def __init__(self, query: Callable[..., hr.PCollection]) -> None:
        self.query = query

    def expand(self, inputs: dict[str, hr.PCollection]) -> hr.PCollection:
        return self.query(**inputs)


@pytest.mark.slow("runs sixteen queries, most of them in two forms")
@pytest.mark.parametrize("form", [columns, functions], ids=lambda form: form.__name__)
def test_queries_give_the_answers_of_a_recount(
    form: ModuleType, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    recount = importlib.import_module("_nexmark.recount")
    events, files = Events(seed=15), {}
    for kind, make in (("person", events.persons), ("auction", events.auctions), ("bid", events.bids)):
        files[kind] = f"{tmp_path}/{kind}.parquet"
        pq.write_table(make(0, 20_000), files[kind])
    names = [name for name in recount.QUERIES if name not in form.NOT_HERE]
    if not FULL:
        names = names[form is columns :: 2]  # one half as columns, the other as functions
    with hr.Pipeline(spark=spark) as p:
        read = {kind: p | kind >> hr.ReadParquet(path, event_time="date_time") for kind, path in files.items()}
        for name in names:
            query = getattr(form, name)
            inputs = {kind: read[kind] for kind in inspect.signature(query).parameters}
            inputs | name >> Query(query) | f"write {name}" >> hr.WriteParquet(f"{tmp_path}/{name}")
    for name in names:
        assert recount.check(name, files, f"{tmp_path}/{name}/*.parquet") > 0, name
