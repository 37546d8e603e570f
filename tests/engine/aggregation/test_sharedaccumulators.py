"""An aggregation and its partial one of the same column have one accumulator between them."""

from __future__ import annotations

from headrace.engine.aggregation.columnsfn import columns_fn
from headrace.model import agg
from headrace.model.agg import Aggregation
from headrace.model.algebra.partial import PartialFn
from headrace.model.columns import GroupBy
from headrace.model.safebytes import decode


def test_a_partial_aggregation_finishes_the_accumulator_of_the_whole_one() -> None:
    users, pages = agg.approx_distinct("user"), agg.approx_distinct("page")
    fn = columns_fn(
        GroupBy("k").aggregate(
            n=agg.count(),
            users=users,
            of_users=Aggregation(PartialFn(users.fn), "user"),
            of_pages=Aggregation(PartialFn(pages.fn), "page"),  # whose whole one is not there
        )
    )
    assert fn.shared == (0, 1, 1, 3)
    parts = [fn.add_all(fn.zero(), rows) for rows in ([(1, "a", "a", "x"), (1, "b", "b", "x")], [(1, "b", "b", "y")])]
    merged = fn.merge(fn.load(fn.dump(parts[0])), parts[1])
    n, count, of_users, of_pages = fn.finish(merged)
    assert (n, count) == (3, 2)
    assert users.fn.finish(users.fn.load(decode(of_users))) == 2
    assert pages.fn.finish(pages.fn.load(decode(of_pages))) == 2
    assert merged[2] == fn.zero()[2] or users.fn.finish(merged[2]) == 0  # which nothing was added to


def test_aggregations_that_share_nothing_are_as_before() -> None:
    assert columns_fn(GroupBy("k").aggregate(n=agg.count(), high=agg.max("x"))).shared == ()
    # A view over a view has such: its state is that of earlier versions.
    assert columns_fn(GroupBy("k").aggregate(n=agg.count(), _rows=agg.count())).shared == ()
