"""Nexmark's queries in Flink SQL. Runs in an environment of its own, which `make peers` sets up.

Reads orders from standard input, a line of JSON each, and answers with a line: how many seconds a job took. The JVM is
the same for all of them, so a first job warms it up.

Settings as Flink's documentation recommends them for throughput: objects are reused, and aggregations are made in
mini-batches and in two phases (its page on performance tuning). State is on the heap where it stays small, in windows,
and else in RocksDB, with incremental checkpoints, as Spark and Headrace have it. Answers appear with checkpoints,
the last ones as well, so these are half a second apart, that a run may not end long after its work.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

COLUMNS = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, "
    "date_time TIMESTAMP(6), extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    "date_time TIMESTAMP(6), expires TIMESTAMP(6), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "date_time TIMESTAMP(6), extra STRING",
}
"""Event time has milliseconds in Flink, so `at` is what windows go by."""
TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(`at`), INTERVAL '10' SECOND))"
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "execution.checkpointing.interval": "500ms",
    "restart-strategy.type": "none",
    "python.executable": sys.executable,
}
HOUR = "EXTRACT(HOUR FROM date_time)"

QUERIES = {
    "q0": (
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(6), extra STRING",
        "SELECT auction, bidder, price, date_time, extra FROM bid",
    ),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, date_time TIMESTAMP(6), extra STRING",
        "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908E0, date_time, extra FROM bid",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT",
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    "q5": (
        "window_start TIMESTAMP(3), bids BIGINT",
        "SELECT window_start, MAX(bids) FROM (SELECT auction, window_start, window_end, COUNT(*) AS bids FROM "
        "TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
        "GROUP BY auction, window_start, window_end) GROUP BY window_start, window_end",
    ),
    "q7": (
        "window_start TIMESTAMP(3), price BIGINT",
        f"SELECT window_start, MAX(price) FROM {TUMBLE.format('bid')} GROUP BY window_start, window_end",
    ),
    "q8": (
        "window_start TIMESTAMP(3), id BIGINT, name STRING",
        "SELECT p.window_start, p.id, p.name FROM "
        f"(SELECT id, name, window_start, window_end FROM {TUMBLE.format('person')} "
        "GROUP BY id, name, window_start, window_end) p JOIN "
        f"(SELECT seller, window_start, window_end FROM {TUMBLE.format('auction')} "
        "GROUP BY seller, window_start, window_end) a "
        "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
    ),
    "q11": (
        "window_start TIMESTAMP(6), bidder BIGINT, bids BIGINT",
        "SELECT MIN(date_time), bidder, COUNT(*) FROM "
        "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '10' SECOND)) "
        "GROUP BY bidder, window_start, window_end",
    ),
    "q14": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, bid_time STRING, date_time TIMESTAMP(6), extra STRING, "
        "c_counts INT",
        "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908E0, "
        f"CASE WHEN {HOUR} >= 8 AND {HOUR} <= 18 THEN 'dayTime' "
        f"WHEN {HOUR} <= 6 OR {HOUR} >= 20 THEN 'nightTime' ELSE 'otherTime' END, date_time, extra, "
        "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM bid "
        "WHERE CAST(price AS DOUBLE) * 0.908E0 > 1000000 AND CAST(price AS DOUBLE) * 0.908E0 < 50000000",
    ),
    "q20": (
        COLUMNS["bid"] + ", item_name STRING, seller BIGINT, category BIGINT",
        "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name, a.seller, "
        "a.category FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
    ),
}
"""The columns of the answer, and its SQL."""

UPDATED = {
    "q4": (
        "category BIGINT, auctions BIGINT, price DOUBLE",
        "SELECT category, COUNT(*) AS auctions, AVG(CAST(price AS DOUBLE)) AS price FROM (SELECT a.id, a.category, "
        "MAX(b.price) AS price FROM auction a JOIN bid b ON a.id = b.auction "
        "WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) GROUP BY category",
    ),
    "q17": (
        "auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT, "
        "min_price BIGINT, max_price BIGINT, avg_price DOUBLE, sum_price BIGINT",
        "SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids, "
        "COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids, "
        "COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, "
        "COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids, MIN(price) AS min_price, MAX(price) AS max_price, "
        "AVG(CAST(price AS DOUBLE)) AS avg_price, SUM(price) AS sum_price "
        "FROM bid GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd')",
    ),
    "q18": (
        COLUMNS["bid"],
        "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid) WHERE place <= 1",
    ),
    "q19": (
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10",
    ),
}
"""Answers that are updated: their columns and SQL. A file takes no updates, so they are written as changes, with
an `op` that is + or -."""
GROWING = {"q3", "q20", *UPDATED}
"""Queries whose state grows with the input."""
CHANGES = "MAP['INSERT, UPDATE_AFTER', '+', 'UPDATE_BEFORE, DELETE', '-']"


def run(query: str, inputs: dict[str, str], out: str) -> float:
    """Runs a query over folders of files, to its end; returns the seconds."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
    tables.get_config().set("execution.checkpointing.dir", f"file://{out}-checkpoints")
    if query in GROWING:
        tables.get_config().set("state.backend.type", "rocksdb")
        tables.get_config().set("execution.checkpointing.incremental", "true")
    for kind, folder in inputs.items():
        tables.execute_sql(
            f"CREATE TABLE {kind} ({COLUMNS[kind]}, `at` AS CAST(date_time AS TIMESTAMP(3)), "
            f"WATERMARK FOR `at` AS `at`) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', "
            "'format' = 'parquet', "
            "'parquet.utc-timezone' = 'true')"
        )
    if query in UPDATED:
        columns, select = UPDATED[query]
        tables.execute_sql(f"CREATE TEMPORARY VIEW updated AS {select}")
        names = ", ".join(each.split()[0] for each in columns.split(", "))
        changes = f"TO_CHANGELOG(input => TABLE updated, op_mapping => {CHANGES})"
        columns, select = f"{columns}, op STRING", f"SELECT {names}, op FROM {changes}"
    else:
        columns, select = QUERIES[query]
    tables.execute_sql(
        f"CREATE TABLE answer ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{out}', "
        "'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'parquet.write.int64.timestamp' = 'true', "
        "'parquet.timestamp.time.unit' = 'micros')"
    )
    began = time.monotonic()
    tables.execute_sql(f"INSERT INTO answer {select}").wait()
    return time.monotonic() - began


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"seconds": run(order["query"], order["inputs"], order["out"])}
        except Exception as error:
            causes = re.findall(r"^Caused by: (.*)", str(error), re.MULTILINE) or str(error).splitlines()
            told = {"error": causes[-1]}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
