"""Nexmark's answers again, by DuckDB over all the events at once: what every form's output is held to.

A query has the SQL of the true answer, and that of what a form has written: of a running answer, the latest row of each
key. Where fractions may differ in their last digits, both are rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb


class Recount(NamedTuple):
    truth: str
    written: str = "SELECT {columns} FROM out"


_LATEST = (
    "SELECT {columns} FROM out WHERE auction >= 0 QUALIFY row_number() OVER (PARTITION BY %s ORDER BY %s DESC) = 1"
)
_CLOSED = (
    "SELECT a.id, any_value(a.expires) AS expires, any_value(a.seller) AS seller, any_value(a.category) AS category, "
    "max(b.price) AS price FROM auction a JOIN bid b ON a.id = b.auction "
    "WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id"
)
_DAY = (
    "CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' "
    "WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END"
)
_KNOWN = "SELECT {columns} FROM out WHERE auction >= 0"

QUERIES = {
    "q0": Recount("SELECT auction, bidder, price, date_time, extra FROM bid", _KNOWN),
    "q1": Recount("SELECT auction, bidder, price * 0.908::DOUBLE AS price, date_time, extra FROM bid", _KNOWN),
    "q2": Recount("SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q3": Recount(
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"
    ),
    "q4": Recount(
        f"SELECT category, round(avg(price), 3) AS price FROM ({_CLOSED}) GROUP BY category",
        "SELECT category, round(price, 3) AS price FROM out "
        "QUALIFY row_number() OVER (PARTITION BY category ORDER BY auctions DESC) = 1",
    ),
    "q5": Recount(
        "SELECT window_start, max(bids) AS bids FROM (SELECT s.at AS window_start, auction, count(*) AS bids FROM bid, "
        "(SELECT unnest([0, 2, 4, 6, 8]) AS back) b, LATERAL (SELECT time_bucket(INTERVAL 2 SECONDS, date_time) "
        "- to_seconds(b.back) AS at) s GROUP BY ALL) GROUP BY window_start"
    ),
    "q6": Recount(
        "SELECT seller, round(avg(price), 3) AS price FROM (SELECT seller, price, row_number() OVER "
        f"(PARTITION BY seller ORDER BY expires DESC, id DESC) AS place FROM ({_CLOSED})) "
        "WHERE place <= 10 GROUP BY seller",
        "SELECT seller, round(price, 3) AS price FROM out "
        "QUALIFY row_number() OVER (PARTITION BY seller ORDER BY closed DESC, auction DESC) = 1",
    ),
    "q7": Recount(
        "SELECT time_bucket(INTERVAL 10 SECONDS, date_time) AS window_start, max(price) AS price FROM bid GROUP BY ALL"
    ),
    "q8": Recount(
        "SELECT DISTINCT time_bucket(INTERVAL 10 SECONDS, p.date_time) AS window_start, p.id, p.name FROM person p "
        "JOIN auction a ON p.id = a.seller "
        "AND time_bucket(INTERVAL 10 SECONDS, p.date_time) = time_bucket(INTERVAL 10 SECONDS, a.date_time)"
    ),
    "q11": Recount(
        "SELECT min(date_time) AS window_start, bidder, count(*) AS bids FROM (SELECT *, sum(fresh) OVER "
        "(PARTITION BY bidder ORDER BY date_time) AS session FROM (SELECT bidder, date_time, CASE WHEN date_time < "
        "lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) + INTERVAL 10 SECONDS THEN 0 ELSE 1 END AS fresh "
        "FROM bid)) GROUP BY bidder, session",
        "SELECT {columns} FROM out WHERE bidder >= 0",
    ),
    "q12": Recount(
        "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder",
        "SELECT bidder, sum(bids) AS bids FROM out WHERE bidder >= 0 GROUP BY bidder",
    ),
    "q14": Recount(
        f"SELECT auction, bidder, 0.908::DOUBLE * price AS price, {_DAY} AS bid_time, date_time, extra, "
        "length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid "
        "WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000",
    ),
    "q17": Recount(
        "SELECT auction, strftime(date_time, '%Y-%m-%d') AS day, count(*) AS total_bids, "
        "count(*) FILTER (price < 10000) AS rank1_bids, "
        "count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids, "
        "count(*) FILTER (price >= 1000000) AS rank3_bids, min(price) AS min_price, max(price) AS max_price, "
        "round(avg(price), 3) AS avg_price, sum(price)::BIGINT AS sum_price FROM bid GROUP BY ALL",
        _LATEST % ("auction, day", "total_bids"),
    ),
    "q18": Recount(
        "SELECT bidder, auction, price, channel, url, date_time, extra FROM bid "
        "QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1",
        _LATEST % ("bidder, auction", "date_time"),
    ),
    "q19": Recount(
        "SELECT auction, list(price ORDER BY price DESC)[:10] AS prices FROM bid GROUP BY auction",
        _LATEST % ("auction", "(len(prices), list_sum(prices))"),
    ),
    "q20": Recount(
        "SELECT b.*, a.item_name, a.seller, a.category FROM bid b JOIN auction a ON b.auction = a.id "
        "WHERE a.category = 10"
    ),
}
CHANGES = {
    "q4": "SELECT category, round(price, 3) AS price FROM (%s)",
    "q17": "SELECT {columns} FROM (%s)",
    "q18": "SELECT {columns} FROM (%s)",
    "q19": "SELECT auction, list(price ORDER BY price DESC) AS prices FROM (%s) GROUP BY auction",
}
"""What is written where an answer is a table of changes, in rows with an `op` that is + or -: what is left of them."""
_LEFT = (
    "SELECT * EXCLUDE (n, times) FROM (SELECT *, unnest(range(n)) AS times FROM (SELECT * EXCLUDE (op), "
    "sum(CASE op WHEN '+' THEN 1 ELSE -1 END)::BIGINT AS n FROM out GROUP BY ALL HAVING n > 0))"
)
ROUNDED = {"avg_price": "round(avg_price, 3)"}


def check(query: str, inputs: dict[str, str], written: str) -> int:
    """Compares what a form has written, Parquet files by a glob, with the recount; returns the number of its rows."""
    recount = QUERIES[query]
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for kind, files in inputs.items():
            db.execute(f"CREATE VIEW {kind} AS SELECT * FROM read_parquet('{files}')")
        db.execute(f"CREATE VIEW out AS SELECT * FROM read_parquet('{written}')")
        db.execute(f"CREATE TABLE truth AS {recount.truth}")
        columns = [name for name, *_ in db.execute("DESCRIBE truth").fetchall()]
        shown = ", ".join(f"{ROUNDED[name]} AS {name}" if name in ROUNDED else name for name in columns)
        changes = any(name == "op" for name, *_ in db.execute("DESCRIBE out").fetchall())
        form = CHANGES[query] % _LEFT if changes else recount.written
        db.execute(f"CREATE TABLE answer AS {form.format(columns=shown)}")
        listed = ", ".join(columns)
        for one, other, what in (("truth", "answer", "lacks"), ("answer", "truth", "has")):
            differing = f"SELECT {listed} FROM {one} EXCEPT ALL SELECT {listed} FROM {other} ORDER BY 1, 2 LIMIT 3"
            if odd := db.execute(differing).fetchall():
                raise AssertionError(f"the answer of {query} {what} {odd}")
        (count,) = db.execute("SELECT count(*) FROM truth").fetchone() or (0,)
        return int(count)
