"""Feeds: access to the records of a topic, in the embedded log or in Kafka, for the layers of views and the server."""

from headrace.views.feeds.feed import Feed, Receipt, RequestConflict, RequestKey, TopicUnavailable, feed_of

__all__ = ["Feed", "Receipt", "RequestConflict", "RequestKey", "TopicUnavailable", "feed_of"]
