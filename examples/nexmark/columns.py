"""Nexmark's queries in columns: each takes the collections of the kinds that it names, and gives its answer.

A running answer, one that is updated as events come, has the latest row of each of its keys.
"""

from __future__ import annotations

from typing import Any

import headrace as hr

NOT_HERE = {
    "q4": "the time for which an auction is open is in its row: functions have state and timers",
    "q6": "as q4, and the last ten of a seller",
}
RUNNING: Any = {"trigger": hr.Repeatedly(hr.AfterCount(1)), "accumulation": "accumulating"}
TEN_SECONDS = hr.FixedWindows("10 seconds")


def q0(bid: hr.PCollection) -> hr.PCollection:
    """Passes bids on."""
    return bid | hr.Select("auction", "bidder", "price", "date_time", "extra")


def q1(bid: hr.PCollection) -> hr.PCollection:
    """Gives prices in euros."""
    return bid | hr.Select("auction", "bidder", "date_time", "extra", price="0.908D * price")


def q2(bid: hr.PCollection) -> hr.PCollection:
    """Finds the bids for some auctions."""
    return bid | hr.Where("auction % 123 = 0") | hr.Select("auction", "price")


def q3(auction: hr.PCollection, person: hr.PCollection) -> hr.PCollection:
    """Finds who sells in category 10 in three states."""
    auctions = auction | hr.Where("category = 10") | hr.Select("id", "seller")
    people = (
        person
        | "states" >> hr.Where("state IN ('OR', 'ID', 'CA')")
        | "people" >> hr.Select("name", "city", "state", seller="id")
    )
    joined = auctions | hr.Join(people, on="seller", stream=True)
    return joined | "found" >> hr.Select("name", "city", "state", "id")


def q5(bid: hr.PCollection) -> hr.PCollection:
    """Finds how many bids the hottest auction had in the last ten seconds, every two seconds."""
    sliding = bid | hr.WindowInto(hr.SlidingWindows("10 seconds", period="2 seconds"))
    counts = sliding | "count" >> hr.GroupBy("auction").aggregate(bids=hr.count())
    return counts | "hottest" >> hr.GroupBy().aggregate(bids=hr.max("bids"))


def q7(bid: hr.PCollection) -> hr.PCollection:
    """Finds the highest price of every ten seconds."""
    return bid | hr.WindowInto(TEN_SECONDS) | hr.GroupBy().aggregate(price=hr.max("price"))


def q8(auction: hr.PCollection, person: hr.PCollection) -> hr.PCollection:
    """Finds people who sell within the ten seconds in which they came."""
    people = person | hr.WindowInto(TEN_SECONDS) | hr.Select("id", "name")
    auctions = auction | "windows" >> hr.WindowInto(TEN_SECONDS)
    sellers = auctions | hr.GroupBy("seller").aggregate(auctions=hr.count())
    joined = people | hr.Join(sellers, on={"id": "seller"})
    return joined | "found" >> hr.Select("id", "name")


def q11(bid: hr.PCollection) -> hr.PCollection:
    """Counts the bids of each session of a bidder."""
    return bid | hr.WindowInto(hr.Sessions("10 seconds")) | hr.GroupBy("bidder").aggregate(bids=hr.count())


def q12(bid: hr.PCollection) -> hr.PCollection:
    """Counts the bids of each bidder every ten seconds of processing time."""
    every = hr.Repeatedly(hr.AfterProcessingTime("10 seconds"))
    windowed = bid | hr.WindowInto(hr.GlobalWindows(), trigger=every, accumulation="discarding")
    return windowed | hr.GroupBy("bidder").aggregate(bids=hr.count())


def q14(bid: hr.PCollection) -> hr.PCollection:
    """Computes the price in euros, the time of the day, and how often there is a c in extra."""
    euros = bid | hr.Select("auction", "bidder", "date_time", "extra", price="0.908D * price")
    return (
        euros
        | hr.Where("price > 1000000 AND price < 50000000")
        | "describe"
        >> hr.Select(
            "*",
            bid_time="CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' "
            "WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END",
            c_counts="length(extra) - length(replace(extra, 'c', ''))",
        )
    )


def q17(bid: hr.PCollection) -> hr.PCollection:
    """Keeps the statistics of each auction and day."""
    ranked = bid | hr.Select(
        "auction",
        "price",
        day="date_format(date_time, 'yyyy-MM-dd')",
        low="CAST(price < 10000 AS BIGINT)",
        middle="CAST(price >= 10000 AND price < 1000000 AS BIGINT)",
        high="CAST(price >= 1000000 AS BIGINT)",
    )
    return (
        ranked
        | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
        | hr.GroupBy("auction", "day").aggregate(
            total_bids=hr.count(),
            rank1_bids=hr.sum("low"),
            rank2_bids=hr.sum("middle"),
            rank3_bids=hr.sum("high"),
            min_price=hr.min("price"),
            max_price=hr.max("price"),
            avg_price=hr.mean("price"),
            sum_price=hr.sum("price"),
        )
    )


def q18(bid: hr.PCollection) -> hr.PCollection:
    """Keeps the last bid of each bidder for each auction."""
    columns = {name: hr.last(name) for name in ("price", "channel", "url", "date_time", "extra")}
    return bid | hr.WindowInto(hr.GlobalWindows(), **RUNNING) | hr.GroupBy("bidder", "auction").aggregate(**columns)


def q19(bid: hr.PCollection) -> hr.PCollection:
    """Keeps the ten highest prices of each auction."""
    windowed = bid | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
    return windowed | hr.GroupBy("auction").aggregate(prices=hr.top("price", 10))


def q20(auction: hr.PCollection, bid: hr.PCollection) -> hr.PCollection:
    """Gives the bids for auctions of category 10 with what is sold."""
    sold = auction | hr.Where("category = 10") | hr.Select("item_name", "seller", "category", auction="id")
    return bid | hr.Join(sold, on="auction", stream=True)
