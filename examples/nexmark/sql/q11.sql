-- Counts the bids of each session of a bidder.
SELECT bidder, count(*) AS bids, window_start, window_end
FROM SESSION(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECONDS)
GROUP BY bidder, window_start, window_end
