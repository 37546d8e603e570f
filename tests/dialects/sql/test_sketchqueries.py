"""Sketches in SQL: the same aggregations as `hr.*`, within their errors, in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """SELECT page, approx_count_distinct(user) AS users, theta(user) AS sketch,
    theta(user) FILTER (WHERE ms > 500) AS slow,
    theta_sketch_estimate(theta_intersection(theta(user), theta(user) FILTER (WHERE ms > 500))) AS both,
    theta_sketch_estimate(theta_difference(theta(user), theta(user) FILTER (WHERE ms > 500))) AS never,
    frequency(user, 'u7') AS seventh, count_min_frequency(count_min(user), 'u8') AS eighth,
    approx_top_k(user, 1) AS top, quantiles(ms, 3) AS ms, approx_rank(ms, 250) AS rank, histogram(ms, 2) AS bins,
    bloom_contains(bloom(user, 1000), 'u1') AS known, bloom_contains(bloom(user, 1000), 'nobody') AS unknown,
    second_moment(user) AS uneven, sample(user, 5) AS some
    FROM visits GROUP BY page"""


def test_sketches_of_a_query_are_within_their_errors(spark: SparkSession) -> None:
    rows = [("/", f"u{n % 400}", n) for n in range(1, 1001)]
    with hr.Pipeline(spark=spark) as p:
        visits = p | hr.Create(rows) | hr.Select(page="_1", user="_2", ms="_3")
        found = {"visits": visits} | hr.Sql(QUERY) | hr.Collect()
        same = visits | hr.GroupBy("page").aggregate(
            sketch=hr.theta("user"), users=hr.approx_distinct("user"), uneven=hr.second_moment("user")
        )
        python = same | hr.Collect()
    (row,) = found
    (own,) = python
    assert (row.sketch, row.users, row.uneven) == (own.sketch, own.users, own.uneven)
    assert abs(row.users - 400) <= 400 * 0.05
    assert hr.ThetaSketch(row.sketch).estimate == 400
    assert (hr.ThetaSketch(row.sketch) - hr.ThetaSketch(row.slow)).estimate == row.never == 0
    assert row.both == hr.ThetaSketch(row.slow).estimate == 400
    assert (row.seventh, row.eighth) == (3, 3)  # exact: there are fewer than 1,000 different values
    assert row.top[0]["count"] == 3
    low, middle, high = row.ms
    assert (low, high) == (1, 1000) and abs(middle - 500) <= 1000 * 0.0133 + 1
    assert abs(row.rank - 0.25) <= 0.0133
    assert [count for _, _, count in row.bins] == [pytest.approx(500, abs=33)] * 2
    assert row.known and not row.unknown
    assert row.uneven == 200 * 3**2 + 200 * 2**2
    assert len(row.some) == 5 and set(row.some) <= {user for _, user, _ in rows}
