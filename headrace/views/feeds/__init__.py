"""Feeds: where the records of a topic are, and how the layers of views and the server get at them."""

from headrace.views.feeds.feed import Feed, OtherRequest, Receipt, Tried, Unavailable, feed_of

__all__ = ["Feed", "OtherRequest", "Receipt", "Tried", "Unavailable", "feed_of"]
