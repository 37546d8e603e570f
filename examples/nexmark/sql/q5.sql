-- Finds the auctions with most bids in the last ten seconds, every two seconds.
WITH counts AS (
  SELECT auction, window_start, window_end, count(*) AS bids
  FROM HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECONDS, INTERVAL '10' SECONDS)
  GROUP BY auction, window_start, window_end
),
most AS (
  SELECT window_start, window_end, max(bids) AS bids FROM counts GROUP BY window_start, window_end
)
SELECT c.auction, c.bids, c.window_start
FROM counts AS c JOIN most AS m ON c.bids = m.bids AND c.window_start = m.window_start AND c.window_end = m.window_end
EMIT AFTER WATERMARK
