-- Finds people who sell within the ten seconds in which they came.
SELECT p.id, p.name, p.window_start
FROM TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECONDS) AS p
JOIN (
  SELECT seller, window_start, window_end
  FROM TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECONDS)
  GROUP BY seller, window_start, window_end
) AS a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
EMIT AFTER WATERMARK
