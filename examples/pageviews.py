"""Declares the app of `make demo`: page views of a site, counted per page and per country, by the minute.

    headrace up examples/pageviews.py

This serves the two views over HTTP and prints the address; send views to the topic with POST /topics/pageviews.
"""

import headrace as hr

pageviews = hr.Topic(
    "pageviews",
    schema="user string, page string, country string, ms bigint, at timestamp",
    event_time="at",
    key="page",
    partitions=2,
)


@hr.view(pageviews, window=hr.FixedWindows("1 minute"), allowed_lateness="1 hour")
def pages(events):
    """Counts the views and the different visitors of each page."""
    return events | hr.GroupBy("page").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))


@hr.view(pageviews, window=hr.FixedWindows("1 minute"), allowed_lateness="1 hour")
def countries(events):
    """Counts the views of each country, with the total and the largest response time."""
    return events | hr.GroupBy("country").aggregate(hits=hr.count(), ms=hr.sum("ms"), slowest=hr.max("ms"))
