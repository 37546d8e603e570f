"""Nexmark's queries in Bytewax. Runs in an environment of its own, which `make peers` sets up.

    python bytewaxflow.py QUERY OUT KIND=FOLDER... -- PROCESS ADDRESSES

runs one of the processes of a query, with one worker (the way its documentation recommends for work in Python), and
prints a line of JSON: when it began to read, when it had written all, and the CPU seconds between. A folder has a file
for each process. Columns that a query does not use are not read, and times that it only passes on stay numbers.

Windows close when the input ends: how far processes are ahead of each other has no bound, so nothing would be late.
"""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main

ROWS = 5_000
"""Of a batch that a source hands on."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
INTS, TEXT = pa.int64(), pa.string()
clock: dict[str, float] = {}


def begin() -> None:
    if not clock:
        clock.update(began=time.time(), cpu=time.process_time())


class _Rows(StatefulSourcePartition):
    def __init__(self, file: Path, event: Any, moments: bool) -> None:
        begin()
        self.event, self.moments = event, moments
        self.batches = pq.ParquetFile(file).iter_batches(ROWS, columns=list(event._fields))

    def next_batch(self) -> list[Any]:
        batch = next(self.batches, None)
        if batch is None:
            raise StopIteration
        columns = [self._values(batch.column(name)) for name in self.event._fields]
        return list(map(self.event._make, zip(*columns, strict=True)))

    def _values(self, column: pa.Array) -> list[Any]:
        if not pa.types.is_timestamp(column.type):
            return column.to_pylist()
        numbers = column.cast(pa.int64())
        if not self.moments:
            return numbers.to_pylist()
        return [each.replace(tzinfo=UTC) for each in numbers.to_numpy().view("datetime64[us]").tolist()]

    def snapshot(self) -> None:
        return None


class ReadFiles(FixedPartitionedSource):
    def __init__(self, folder: str, columns: str, moments: bool = False) -> None:
        self.folder, self.moments = Path(folder), moments
        name = "Event_" + columns.replace(" ", "_")
        self.event = globals().setdefault(name, namedtuple(name, columns))  # other processes unpickle it

    def list_parts(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> _Rows:
        return _Rows(self.folder / for_part, self.event, self.moments)


class _Written(StatelessSinkPartition):
    def __init__(self, file: Path, schema: pa.Schema) -> None:
        begin()
        self.schema, self.rows = schema, []
        self.writer = pq.ParquetWriter(file, schema)

    def write_batch(self, items: list[Any]) -> None:
        self.rows.extend(items)
        if len(self.rows) >= 100_000:
            self._flush()

    def _flush(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
            self.writer.write_table(pa.table(arrays, schema=self.schema))
            self.rows = []

    def close(self) -> None:
        self._flush()
        self.writer.close()
        clock["ended"] = time.time()


class WriteParquet(DynamicSink):
    def __init__(self, folder: str, **columns: pa.DataType) -> None:
        self.folder, self.schema = folder, pa.schema(list(columns.items()))

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Written:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return _Written(Path(self.folder, f"{worker_index}.parquet"), self.schema)


class Running(StatefulBatchLogic):
    """Updates a state with a batch of values of a key, and gives what it is then."""

    def __init__(self, state: Any, update: Callable[[Any, list[Any]], Any]) -> None:
        self.state, self.update = state, update

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        self.state = self.update(self.state, values)
        return [self.state], False

    def snapshot(self) -> Any:
        return self.state


class Query:
    """The queries, as methods that return what they write and the columns of that."""

    def __init__(self, flow: Dataflow, folders: dict[str, str]) -> None:
        self.flow, self.folders = flow, folders
        self.clock = win.EventClock(
            lambda event: event.date_time, timedelta(days=2), now_getter=lambda: EPOCH, to_system_utc=lambda _: None
        )

    def read(self, kind: str, columns: str, moments: bool = False) -> Any:
        return op.input(kind, self.flow, ReadFiles(self.folders[kind], columns, moments))

    def q0(self) -> Any:
        bids = self.read("bid", "auction bidder price date_time extra")
        passed = op.map("passed", bids, lambda bid: (bid.auction, bid.bidder, bid.price, bid.date_time, bid.extra))
        return passed, {"auction": INTS, "bidder": INTS, "price": INTS, "date_time": TIME, "extra": TEXT}

    def q1(self) -> Any:
        bids = self.read("bid", "auction bidder price date_time extra")
        euros = op.map(
            "euros", bids, lambda bid: (bid.auction, bid.bidder, 0.908 * bid.price, bid.date_time, bid.extra)
        )
        return euros, {"auction": INTS, "bidder": INTS, "price": pa.float64(), "date_time": TIME, "extra": TEXT}

    def q2(self) -> Any:
        wanted = op.filter("wanted", self.read("bid", "auction price"), lambda bid: bid.auction % 123 == 0)
        return op.map("price", wanted, lambda bid: (bid.auction, bid.price)), {"auction": INTS, "price": INTS}

    def q3(self) -> Any:
        people = op.filter("states", self.read("person", "id name city state"), lambda p: p.state in ("OR", "ID", "CA"))
        auctions = op.filter("category", self.read("auction", "id seller category"), lambda a: a.category == 10)
        left = op.map("buyer", people, lambda p: (str(p.id), ((p.name, p.city, p.state), None)))
        right = op.map("by seller", auctions, lambda a: (str(a.seller), (None, (a.id,))))
        found = op.stateful_flat_map("join", op.merge("both", left, right), joined)
        return op.map("found", found, lambda pair: pair[1]), {"name": TEXT, "city": TEXT, "state": TEXT, "id": INTS}

    def q5(self) -> Any:
        bids = self.read("bid", "auction date_time", moments=True)
        sliding = win.SlidingWindower(timedelta(seconds=10), timedelta(seconds=2), EPOCH)
        counts = win.count_window("count", bids, self.clock, sliding, lambda bid: str(bid.auction)).down
        by_window = op.map("by window", counts, lambda pair: (str(pair[1][0]), pair[1][1]))
        hottest = op.max_final("hottest", by_window)
        return op.map("named", hottest, lambda pair: (int(pair[0]) * 2_000_000, pair[1])), {
            "window_start": TIME,
            "bids": INTS,
        }

    def q7(self) -> Any:
        bids = op.key_on("all", self.read("bid", "price date_time", moments=True), lambda bid: "all")
        tumbling = win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
        highest = win.max_window("highest", bids, self.clock, tumbling, by=lambda bid: bid.price).down
        return op.map("named", highest, lambda pair: (pair[1][0] * 10_000_000, pair[1][1].price)), {
            "window_start": TIME,
            "price": INTS,
        }

    def q8(self) -> Any:
        people = op.key_on("id", self.read("person", "id name date_time", moments=True), lambda p: str(p.id))
        auctions = op.key_on("seller", self.read("auction", "seller date_time", moments=True), lambda a: str(a.seller))
        tumbling = win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
        found = win.join_window("join", self.clock, tumbling, people, auctions, emit_mode="final").down
        both = op.filter("both", found, lambda pair: None not in pair[1][1])
        return op.map("named", both, lambda pair: (pair[1][0] * 10_000_000, int(pair[0]), pair[1][1][0].name)), {
            "window_start": TIME,
            "id": INTS,
            "name": TEXT,
        }

    def q11(self) -> Any:
        bids = op.key_on("bidder", self.read("bid", "bidder date_time", moments=True), lambda bid: str(bid.bidder))
        # Its sessions have their last instant; those of others end before it.
        sessions = win.SessionWindower(timedelta(seconds=10) - timedelta(microseconds=1))
        counts = win.fold_window(
            "count",
            bids,
            self.clock,
            sessions,
            lambda: None,
            lambda seen, bid: (min(seen[0], bid.date_time), seen[1] + 1) if seen else (bid.date_time, 1),
            lambda one, other: (min(one[0], other[0]), one[1] + other[1]) if one and other else one or other,
            ordered=False,
        ).down
        return op.map("named", counts, lambda pair: (pair[1][1][0], int(pair[0]), pair[1][1][1])), {
            "window_start": TIME,
            "bidder": INTS,
            "bids": INTS,
        }

    def q12(self) -> Any:
        tumbling = win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
        bids = self.read("bid", "bidder")
        counts = win.count_window("count", bids, win.SystemClock(), tumbling, lambda bid: str(bid.bidder)).down
        return op.map("named", counts, lambda pair: (int(pair[0]), pair[1][1])), {"bidder": INTS, "bids": INTS}

    def q14(self) -> Any:
        def described(bid: Any) -> tuple[Any, ...]:
            hour = bid.date_time.hour
            part = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
            return bid.auction, bid.bidder, 0.908 * bid.price, part, bid.date_time, bid.extra, bid.extra.count("c")

        bids = self.read("bid", "auction bidder price date_time extra", moments=True)
        wanted = op.filter("wanted", bids, lambda bid: 1_000_000 < 0.908 * bid.price < 50_000_000)
        columns = {"auction": INTS, "bidder": INTS, "price": pa.float64(), "bid_time": TEXT, "date_time": TIME}
        return op.map("described", wanted, described), {**columns, "extra": TEXT, "c_counts": INTS}

    def q17(self) -> Any:
        def update(held: tuple[Any, ...] | None, prices: list[int]) -> tuple[Any, ...]:
            count, low, middle, high, least, greatest, total = held or (0, 0, 0, 0, prices[0], prices[0], 0)
            for price in prices:
                if price < 10_000:
                    low += 1
                elif price < 1_000_000:
                    middle += 1
                else:
                    high += 1
            total += sum(prices)
            return count + len(prices), low, middle, high, min(least, *prices), max(greatest, *prices), total

        def named(pair: Any) -> tuple[Any, ...]:
            key, (count, low, middle, high, least, greatest, total) = pair
            auction, day = key.split(" ")
            return int(auction), day, count, low, middle, high, least, greatest, total / count, total

        bids = self.read("bid", "auction price date_time", moments=True)
        keyed = op.map("day", bids, lambda bid: (f"{bid.auction} {bid.date_time:%Y-%m-%d}", bid.price))
        statistics = op.stateful_batch("statistics", keyed, lambda held: Running(held, update))
        counts = dict.fromkeys(("total_bids", "rank1_bids", "rank2_bids", "rank3_bids", "min_price", "max_price"), INTS)
        columns = {"auction": INTS, "day": TEXT, **counts, "avg_price": pa.float64(), "sum_price": INTS}
        return op.map("named", statistics, named), columns

    def q18(self) -> Any:
        def update(last: Any, bids: list[Any]) -> Any:
            latest = max(bids, key=lambda bid: bid.date_time)
            return latest if last is None or latest.date_time >= last.date_time else last

        bids = self.read("bid", "auction bidder price channel url date_time extra")
        keyed = op.key_on("key", bids, lambda bid: f"{bid.bidder} {bid.auction}")
        last = op.stateful_batch("last", keyed, lambda held: Running(held, update))
        columns = {"auction": INTS, "bidder": INTS, "price": INTS, "channel": TEXT, "url": TEXT}
        return op.map("named", last, lambda pair: tuple(pair[1])), {**columns, "date_time": TIME, "extra": TEXT}

    def q19(self) -> Any:
        def update(top: list[int] | None, prices: list[int]) -> list[int]:
            return heapq.nlargest(10, [*(top or []), *prices])

        keyed = op.map("key", self.read("bid", "auction price"), lambda bid: (str(bid.auction), bid.price))
        top = op.stateful_batch("top", keyed, lambda held: Running(held, update))
        columns = {"auction": INTS, "prices": pa.list_(INTS)}
        return op.map("named", top, lambda pair: (int(pair[0]), pair[1])), columns

    def q20(self) -> Any:
        auctions = op.filter(
            "category", self.read("auction", "id item_name seller category"), lambda auction: auction.category == 10
        )
        bids = self.read("bid", "auction bidder price channel url date_time extra")
        left = op.map("sold", auctions, lambda a: (str(a.id), ((a.item_name, a.seller, a.category), None)))
        right = op.map("bidden", bids, lambda bid: (str(bid.auction), (None, tuple(bid))))
        found = op.stateful_flat_map("join", op.merge("both", left, right), joined)
        columns = {"item_name": TEXT, "seller": INTS, "category": INTS, "auction": INTS, "bidder": INTS, "price": INTS}
        texts = {"channel": TEXT, "url": TEXT, "date_time": TIME, "extra": TEXT}
        return op.map("found", found, lambda pair: pair[1]), {**columns, **texts}


def joined(state: Any, pair: Any) -> tuple[Any, list[Any]]:
    """Joins what comes to one left value of a key: rights that come before it wait."""
    left, waiting = state or (None, [])
    new, right = pair
    if new is not None:
        return (new, []), [new + each for each in waiting]
    if left is None:
        waiting.append(right)
        return (None, waiting), []
    return (left, []), [left + right]


if __name__ == "__main__":
    query, out, *folders, _, process, addresses = sys.argv[1:]
    flow = Dataflow(query)
    answer, columns = getattr(Query(flow, dict(each.split("=", 1) for each in folders)), query)()
    op.output("out", answer, WriteParquet(out, **columns))
    cli_main(flow, process_id=int(process), addresses=addresses.split(";"))
    print(json.dumps({**clock, "cpu": time.process_time() - clock["cpu"]}))
