-- Finds the mean price of the last ten auctions of each seller that have closed.
SELECT seller, avg(price) AS mean
FROM (
  SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id) AS place
  FROM (
    SELECT a.seller, a.id, a.expires, max(b.price) AS price
    FROM auction AS a JOIN bid AS b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.seller, a.id, a.expires
  )
)
WHERE place <= 10
GROUP BY seller
