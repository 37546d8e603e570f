"""The app of `make demo`: page views of a site, counted by page and by country, every minute.

headrace up examples/pageviews.py
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
    return events | hr.GroupBy("page").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))


@hr.view(pageviews, window=hr.FixedWindows("1 minute"), allowed_lateness="1 hour")
def countries(events):
    return events | hr.GroupBy("country").aggregate(hits=hr.count(), ms=hr.sum("ms"), slowest=hr.max("ms"))
