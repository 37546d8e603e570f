"""Nexmark's queries in Python functions: each takes the collections of the kinds that it names, and gives its answer.

The answers are those of `columns`, and of the queries that columns cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import headrace as hr

from .columns import RUNNING, TEN_SECONDS

NOT_HERE: dict[str, str] = {}


class Passed(NamedTuple):
    auction: int
    bidder: int
    price: int
    date_time: datetime
    extra: str


class InEuros(NamedTuple):
    auction: int
    bidder: int
    price: float
    date_time: datetime
    extra: str


class Described(NamedTuple):
    auction: int
    bidder: int
    price: float
    bid_time: str
    date_time: datetime
    extra: str
    c_counts: int


class Price(NamedTuple):
    auction: int
    price: int


class Seller(NamedTuple):
    name: str
    city: str
    state: str
    id: int


class CategoryPrice(NamedTuple):
    category: int
    auctions: int
    price: float


class SellerPrice(NamedTuple):
    seller: int
    auction: int
    closed: datetime
    price: float


class Bids(NamedTuple):
    bids: int


class Highest(NamedTuple):
    price: int


class NewSeller(NamedTuple):
    id: int
    name: str


class BidderBids(NamedTuple):
    bidder: int
    bids: int


class Statistics(NamedTuple):
    auction: int
    day: str
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    min_price: int
    max_price: int
    avg_price: float
    sum_price: int


class LastBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str


class TopPrices(NamedTuple):
    auction: int
    prices: list[int]


class Expanded(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str
    item_name: str
    seller: int
    category: int


# Without state


def q0(bid: hr.PCollection) -> hr.PCollection:
    def passed(bid: Any) -> Passed:
        return Passed(bid.auction, bid.bidder, bid.price, bid.date_time, bid.extra)

    return bid | hr.Map(passed)


def q1(bid: hr.PCollection) -> hr.PCollection:
    def in_euros(bid: Any) -> InEuros:
        return InEuros(bid.auction, bid.bidder, 0.908 * bid.price, bid.date_time, bid.extra)

    return bid | hr.Map(in_euros)


def q2(bid: hr.PCollection) -> hr.PCollection:
    def price(bid: Any) -> Price:
        return Price(bid.auction, bid.price)

    return bid | hr.Filter(lambda bid: bid.auction % 123 == 0) | hr.Map(price)


def q14(bid: hr.PCollection) -> hr.PCollection:
    def described(bid: Any) -> Described:
        hour = bid.date_time.hour
        time = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
        counts = bid.extra.count("c")
        return Described(bid.auction, bid.bidder, 0.908 * bid.price, time, bid.date_time, bid.extra, counts)

    return bid | hr.Filter(lambda bid: 1_000_000 < 0.908 * bid.price < 50_000_000) | hr.Map(described)


# Joins


def q3(auction: hr.PCollection, person: hr.PCollection) -> hr.PCollection:
    """Finds who sells in category 10 in three states."""

    def seller(pair: Any) -> Seller:
        _, (person, auction) = pair
        return Seller(person.name, person.city, person.state, auction.id)

    people = person | hr.Filter(lambda person: person.state in ("OR", "ID", "CA")) | hr.KeyBy(lambda person: person.id)
    auctions = (
        auction
        | "category" >> hr.Filter(lambda auction: auction.category == 10)
        | "by seller" >> hr.KeyBy(lambda auction: auction.seller)
    )
    return (people, auctions) | hr.IntervalJoin(upper="1 day") | "seller" >> hr.Map(seller)


def q8(auction: hr.PCollection, person: hr.PCollection) -> hr.PCollection:
    """Finds people who sell within the ten seconds in which they came."""

    def new_sellers(pair: Any) -> Iterator[NewSeller]:
        person, found = pair
        if any(True for _ in found["auctions"]):
            for name in found["people"]:
                yield NewSeller(person, name)

    people = person | hr.WindowInto(TEN_SECONDS) | hr.Map(lambda person: (person.id, person.name))
    sellers = auction | "windows" >> hr.WindowInto(TEN_SECONDS) | "sellers" >> hr.Map(lambda each: (each.seller, None))
    return {"people": people, "auctions": sellers} | hr.CoGroupByKey() | hr.FlatMap(new_sellers)


def q20(auction: hr.PCollection, bid: hr.PCollection) -> hr.PCollection:
    """Gives the bids for auctions of category 10 with what is sold."""

    def expanded(pair: Any) -> Expanded:
        _, (auction, bid) = pair
        return Expanded(*bid, auction.item_name, auction.seller, auction.category)

    auctions = auction | hr.Filter(lambda auction: auction.category == 10) | hr.KeyBy(lambda auction: auction.id)
    bids = bid | "by auction" >> hr.KeyBy(lambda bid: bid.auction)
    return (auctions, bids) | hr.IntervalJoin(upper="1 day") | hr.Map(expanded)


# Auctions that close


class Close(hr.DoFn):
    """Gives an auction with its highest bid when it expires, if it had one."""

    auction = hr.ValueState("auction")
    highest = hr.ValueState("highest")
    expires = hr.TimerSpec("expires", "event")

    def process(
        self,
        pair: Any,
        auction: Any = hr.DoFn.StateParam(auction),
        highest: Any = hr.DoFn.StateParam(highest),
        expires: Any = hr.DoFn.TimerParam(expires),
    ) -> None:
        _, (opened, bid) = pair
        if bid is None:
            auction.write(opened)
            expires.set(opened[0] + timedelta(microseconds=1))  # a bid at that very time still counts
        elif (known := auction.read()) is not None:
            time, price = bid
            if time <= known[0] and price > (highest.read() or 0):
                highest.write(price)

    @hr.on_timer(expires)
    def close(
        self,
        number: Any = hr.DoFn.ElementParam,
        auction: Any = hr.DoFn.StateParam(auction),
        highest: Any = hr.DoFn.StateParam(highest),
    ) -> Iterator[Any]:
        if (price := highest.read()) is not None:
            yield (number, *auction.read(), price)
        auction.clear()
        highest.clear()


def closed(auction: hr.PCollection, bid: hr.PCollection) -> hr.PCollection:
    """Gives (auction, expires, seller, category, price) of each auction that has closed."""
    opened = auction | "opened" >> hr.Map(lambda each: (each.id, ((each.expires, each.seller, each.category), None)))
    prices = bid | "prices" >> hr.Map(lambda bid: (bid.auction, (None, (bid.date_time, bid.price))))
    return (opened, prices) | hr.Flatten() | hr.ParDo(Close())


class CountAndSum(hr.CombineFn):
    """Counts numbers and adds them up."""

    def zero(self) -> tuple[int, int]:
        return 0, 0

    def add(self, acc: tuple[int, int], number: int) -> tuple[int, int]:
        return acc[0] + 1, acc[1] + number

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]

    def finish(self, acc: tuple[int, int]) -> tuple[int, int]:
        return acc


def q4(auction: hr.PCollection, bid: hr.PCollection) -> hr.PCollection:
    """Keeps the mean price at which auctions of a category closed."""

    def named(pair: Any) -> CategoryPrice:
        category, (count, total) = pair
        return CategoryPrice(category, count, total / count)

    prices = closed(auction, bid) | "by category" >> hr.Map(lambda each: (each[3], each[4]))
    windowed = prices | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
    return windowed | hr.CombinePerKey(CountAndSum()) | "named" >> hr.Map(named)


class LastTen(hr.DoFn):
    """Gives the mean price of the last ten auctions of a seller, each time when one closes."""

    latest = hr.ValueState("latest")

    def process(self, pair: Any, latest: Any = hr.DoFn.StateParam(latest)) -> Iterator[SellerPrice]:
        seller, auction = pair
        last = sorted([*(latest.read() or []), auction])[-10:]
        latest.write(last)
        closed, number, _ = auction
        yield SellerPrice(seller, number, closed, sum(price for _, _, price in last) / len(last))


def q6(auction: hr.PCollection, bid: hr.PCollection) -> hr.PCollection:
    """Keeps the mean price of the last ten auctions of each seller."""
    prices = closed(auction, bid) | "by seller" >> hr.Map(lambda each: (each[2], (each[1], each[0], each[4])))
    return prices | hr.ParDo(LastTen())


# Groupings


def q5(bid: hr.PCollection) -> hr.PCollection:
    def named(bids: int) -> Bids:
        return Bids(bids)

    sliding = bid | hr.WindowInto(hr.SlidingWindows("10 seconds", period="2 seconds"))
    counts = sliding | hr.Map(lambda bid: bid.auction) | hr.Count.per_element()
    return counts | hr.Values() | "hottest" >> hr.CombineGlobally(max) | "named" >> hr.Map(named)


def q7(bid: hr.PCollection) -> hr.PCollection:
    def named(price: int) -> Highest:
        return Highest(price)

    prices = bid | hr.WindowInto(TEN_SECONDS) | hr.Map(lambda bid: bid.price)
    return prices | hr.CombineGlobally(max) | "named" >> hr.Map(named)


def _counted(bids: hr.PCollection) -> hr.PCollection:
    def named(pair: Any) -> BidderBids:
        return BidderBids(*pair)

    return bids | hr.Map(lambda bid: bid.bidder) | hr.Count.per_element() | "named" >> hr.Map(named)


def q11(bid: hr.PCollection) -> hr.PCollection:
    return _counted(bid | hr.WindowInto(hr.Sessions("10 seconds")))


def q12(bid: hr.PCollection) -> hr.PCollection:
    every = hr.Repeatedly(hr.AfterProcessingTime("10 seconds"))
    return _counted(bid | hr.WindowInto(hr.GlobalWindows(), trigger=every, accumulation="discarding"))


class StatisticsFn(hr.CombineFn):
    """Counts bids by height of price, and finds the least, the greatest and the sum of the prices."""

    def zero(self) -> list[Any]:
        return [0, 0, 0, 0, None, None, 0]

    def add(self, acc: list[Any], price: int) -> list[Any]:
        acc[0] += 1
        acc[1 if price < 10_000 else 2 if price < 1_000_000 else 3] += 1
        acc[4] = price if acc[4] is None or price < acc[4] else acc[4]
        acc[5] = price if acc[5] is None or price > acc[5] else acc[5]
        acc[6] += price
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        if not b[0]:
            return a
        a[:4] = [mine + other for mine, other in zip(a[:4], b[:4], strict=True)]
        a[4] = b[4] if a[4] is None else min(a[4], b[4])
        a[5] = b[5] if a[5] is None else max(a[5], b[5])
        a[6] += b[6]
        return a

    def finish(self, acc: list[Any]) -> list[Any]:
        return [*acc[:6], acc[6] / acc[0] if acc[0] else None, acc[6]]


def q17(bid: hr.PCollection) -> hr.PCollection:
    def named(pair: Any) -> Statistics:
        (auction, day), statistics = pair
        return Statistics(auction, day, *statistics)

    prices = bid | hr.Map(lambda bid: ((bid.auction, bid.date_time.strftime("%Y-%m-%d")), bid.price))
    windowed = prices | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
    return windowed | hr.CombinePerKey(StatisticsFn()) | "named" >> hr.Map(named)


def _later(one: Any, other: Any) -> Any:
    return one if one[3] >= other[3] else other


def q18(bid: hr.PCollection) -> hr.PCollection:
    def named(pair: Any) -> LastBid:
        (bidder, auction), bid = pair
        return LastBid(auction, bidder, *bid)

    bids = bid | hr.Map(
        lambda bid: ((bid.bidder, bid.auction), (bid.price, bid.channel, bid.url, bid.date_time, bid.extra))
    )
    return bids | hr.WindowInto(hr.GlobalWindows(), **RUNNING) | hr.CombinePerKey(_later) | "named" >> hr.Map(named)


def q19(bid: hr.PCollection) -> hr.PCollection:
    def named(pair: Any) -> TopPrices:
        return TopPrices(*pair)

    prices = bid | hr.Map(lambda bid: (bid.auction, bid.price)) | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
    return prices | hr.Top.largest_per_key(10) | "named" >> hr.Map(named)
