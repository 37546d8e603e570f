-- Finds the mean price at which auctions of a category close.
SELECT category, avg(final) AS mean
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
