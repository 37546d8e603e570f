"""Generates the events of Nexmark: of fifty, the first is a person, three are auctions, and the others are bids.

An event depends on its number and the seed only, so any range can be made by itself, anywhere, in any order. Numbers
are drawn by hashing those two (SplitMix64), by column; time goes on by 100 microseconds from event to event.

    >>> events = Events(seed=1)
    >>> bids = events.bids(0, 1_000_000)
    >>> bids.num_rows, bids.schema.names
    (920000, ['auction', 'bidder', 'price', 'channel', 'url', 'date_time', 'extra'])
    >>> bids.slice(46).slice(0, 2).equals(events.bids(54, 56))
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EPOCH = 50
"""Events among which the kinds are dealt: number 0 is a person, 1 to 3 are auctions, the others are bids."""
PERSONS, AUCTIONS, BIDS = 1, 3, 46
FIRST_ID = 1000
BEGIN = datetime(2026, 1, 1, 7, 59, tzinfo=UTC)
STEP = 100
"""Microseconds from one event to the next: 10,000 events a second."""
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1000, 100
"""How many of the latest bid and sell, and are bid for."""
LONGEST = 333_000
"""Microseconds that an auction is open at most: twice as long as the latest so many are the latest."""

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]

_TIME = pa.timestamp("us", tz="UTC")
_BEGIN = int(BEGIN.timestamp() * 1_000_000)

PERSON = pa.schema(
    [
        ("id", pa.int64()),
        *((name, pa.string()) for name in ("name", "email", "credit_card", "city", "state")),
        ("date_time", _TIME),
        ("extra", pa.string()),
    ]
)
AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("item_name", pa.string()),
        ("description", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("date_time", _TIME),
        ("expires", _TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID = pa.schema(
    [
        *((name, pa.int64()) for name in ("auction", "bidder", "price")),
        *((name, pa.string()) for name in ("channel", "url")),
        ("date_time", _TIME),
        ("extra", pa.string()),
    ]
)


@dataclass(frozen=True)
class Events:
    """The events of a seed; ranges are those of Python, `first` included and `last` not."""

    seed: int = 1

    def persons(self, first: int, last: int) -> pa.Table:
        """Makes the people among these events.

        >>> Events().persons(0, 101).column("id").to_pylist()
        [1000, 1001, 1002]
        """
        n = _among(first, last, 0, PERSONS)
        name, surname = self._draw(n, 0, len(FIRST_NAMES)), self._draw(n, 1, len(LAST_NAMES))
        card = self._draw(n, 2, 10**16)
        digits = [_digits(card // 10 ** (4 * place) % 10**4, 4) for place in (3, 2, 1, 0)]
        columns = [
            FIRST_ID + n // EPOCH,
            _joined(_chosen(FIRST_NAMES, name), _chosen(LAST_NAMES, surname), " "),
            _joined(self._text(n, 3, 7, 7), pa.array(["@example.com"] * len(n), pa.string()), ""),
            _joined(*digits, " "),
            _chosen(CITIES, self._draw(n, 4, len(CITIES))),
            _chosen(STATES, self._draw(n, 5, len(STATES))),
            _times(n),
            self._text(n, 10, 80, 120),
        ]
        return pa.table(columns, schema=PERSON)

    def auctions(self, first: int, last: int) -> pa.Table:
        """Makes the auctions among these events. A seller is a person before; three of four are one in a hundred.

        >>> Events().auctions(0, 54).column("id").to_pylist()
        [1000, 1001, 1002, 1003, 1004, 1005]
        """
        n = _among(first, last, PERSONS, AUCTIONS)
        number = n // EPOCH * AUCTIONS + n % EPOCH - PERSONS
        initial = self._price(n, 20)
        hot = self._draw(n, 21, 4) > 0
        newest = n // EPOCH
        seller = np.where(hot, newest // 100 * 100, self._one_of_latest(n, 22, newest, ACTIVE_PEOPLE))
        # Two auctions that are open at once should not end at once, or "the last ten" of a seller are not the same ten.
        open_for = STEP * (1 + self._draw(n, 23, LONGEST // STEP - 1)) + number % STEP
        columns = [
            FIRST_ID + number,
            self._text(n, 30, 20, 20),
            self._text(n, 40, 100, 100),
            initial,
            initial + self._price(n, 24),
            _times(n),
            _times(n, open_for),
            FIRST_ID + seller,
            10 + self._draw(n, 25, 5),
            self._text(n, 60, 240, 360),
        ]
        return pa.table(columns, schema=AUCTION)

    def bids(self, first: int, last: int) -> pa.Table:
        """Makes the bids among these events, for auctions before, half of them for one in a hundred, by people before.

        >>> bid = Events().bids(4, 5).to_pylist()[0]
        >>> 1000 <= bid["auction"] < 1003, bid["bidder"], bid["date_time"].isoformat()
        (True, 1000, '2026-01-01T07:59:00.000400+00:00')
        """
        n = _among(first, last, PERSONS + AUCTIONS, BIDS)
        newest_person, newest_auction = n // EPOCH, n // EPOCH * AUCTIONS + AUCTIONS - 1
        hot_auction, hot_bidder, hot_channel = (self._draw(n, 80 + at, of) > 0 for at, of in enumerate((2, 4, 2)))
        auction = np.where(
            hot_auction, newest_auction // 100 * 100, self._one_of_latest(n, 83, newest_auction, OPEN_AUCTIONS)
        )
        bidder = np.where(
            hot_bidder,
            np.minimum(newest_person // 100 * 100 + 1, newest_person),
            self._one_of_latest(n, 84, newest_person, ACTIVE_PEOPLE),
        )
        channel = np.where(
            hot_channel, self._draw(n, 85, len(HOT_CHANNELS)), len(HOT_CHANNELS) + self._draw(n, 86, 10_000)
        )
        columns = [
            FIRST_ID + auction,
            FIRST_ID + bidder,
            self._price(n, 87),
            _chosen(_CHANNELS, channel),
            _chosen(_URLS, channel),
            _times(n),
            self._text(n, 90, 24, 40),
        ]
        return pa.table(columns, schema=BID)

    def _hash(self, n: np.ndarray, draw: int) -> np.ndarray:
        """64 bits for each event, others for each draw."""
        with np.errstate(over="ignore"):
            bits = (n.astype(np.uint64) << np.uint64(10)) + np.uint64(draw)
            return _mixed(bits + _mixed(np.full(1, self.seed, np.uint64)))

    def _draw(self, n: np.ndarray, draw: int, below: int) -> np.ndarray:
        return (self._hash(n, draw) % np.uint64(below)).astype(np.int64)

    def _one_of_latest(self, n: np.ndarray, draw: int, newest: np.ndarray, count: int) -> np.ndarray:
        """One of the latest so many numbers up to the newest."""
        oldest = np.maximum(newest - count + 1, 0)
        return oldest + (self._hash(n, draw) % (newest - oldest + 1).astype(np.uint64)).astype(np.int64)

    def _price(self, n: np.ndarray, draw: int) -> np.ndarray:
        """From 100 to 100,000,000, as many of each magnitude."""
        return np.rint(10 ** (self._hash(n, draw) / 2.0**64 * 6) * 100).astype(np.int64)

    def _text(self, n: np.ndarray, draw: int, shortest: int, longest: int) -> pa.Array:
        """Letters, from one length to another; uses a draw for eight letters, and one for the length."""
        words = -(-longest // 8)
        hashes = np.column_stack([self._hash(n, draw + 1 + word) for word in range(words)]).reshape(len(n), words)
        letters = ord("a") + hashes.view(np.uint8) % np.uint8(26)
        lengths = shortest + self._draw(n, draw, longest - shortest + 1)
        wanted = np.arange(words * 8) < lengths[:, None]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.StringArray.from_buffers(len(n), pa.py_buffer(offsets), pa.py_buffer(letters[wanted].tobytes()))


def _mixed(bits: np.ndarray) -> np.ndarray:
    """SplitMix64."""
    with np.errstate(over="ignore"):
        bits = bits * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _among(first: int, last: int, begin: int, count: int) -> np.ndarray:
    """The numbers in a range whose place in their epoch is one of `count` from `begin`."""
    n = np.arange(first, last, dtype=np.int64)
    place = n % EPOCH
    return n[(place >= begin) & (place < begin + count)]


def _times(n: np.ndarray, later: np.ndarray | int = 0) -> pa.Array:
    return pa.array(_BEGIN + n * STEP + later, _TIME)


def _chosen(texts: list[str] | pa.Array, which: np.ndarray) -> pa.Array:
    return (texts if isinstance(texts, pa.Array) else pa.array(texts)).take(pa.array(which))


def _digits(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts)


def _channels() -> tuple[pa.Array, pa.Array]:
    """Names and addresses: four hot ones, and ten thousand others."""
    events, n = Events(0), np.arange(10_000 + len(HOT_CHANNELS), dtype=np.int64)
    folders = _joined(*(events._text(n, 10 * place, 5, 5) for place in (1, 2, 3)), "/")
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(10_000))]
    urls = [f"https://www.example.com/{folder}/item.htm?query=1" for folder in folders.to_pylist()]
    marked = [f"{url}&channel_id={number}" if number % 10 else url for number, url in enumerate(urls)]
    return pa.array(names), pa.array(marked)


_CHANNELS, _URLS = _channels()
