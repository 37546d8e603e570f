-- Gives the bids for auctions of category 10 with what is sold.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.seller, a.category
FROM bid AS b JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10
