-- Adds what a table has about each auction.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid AS b JOIN side_input AS s ON mod(b.auction, 100) = s.key
