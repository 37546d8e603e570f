-- Keeps the last bid of each bidder for each auction.
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bid
QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1
