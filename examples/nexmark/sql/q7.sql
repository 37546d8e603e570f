-- Finds the bids with the highest price of every ten seconds.
SELECT b.auction, b.price, b.bidder, b.date_time
FROM TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECONDS) AS b
JOIN (
  SELECT window_start, window_end, max(price) AS price
  FROM TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECONDS)
  GROUP BY window_start, window_end
) AS highest
ON b.price = highest.price AND b.window_start = highest.window_start AND b.window_end = highest.window_end
EMIT AFTER WATERMARK
