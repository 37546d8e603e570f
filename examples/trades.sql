CREATE STREAM IF NOT EXISTS trades (symbol text, trader text, price double, size bigint, at timestamp,
                                    WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (partitions = 2);
CREATE CONTINUOUS VIEW IF NOT EXISTS minutes AS
  SELECT symbol, window_start, count(*) AS n, sum(price * size) / sum(size) AS vwap
  FROM TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE)
  WHERE size > 0 GROUP BY symbol, window_start;
