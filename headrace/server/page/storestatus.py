"""The status of a store and a log without a running system, in the form of a system's status."""

from __future__ import annotations

from headrace.server.service import Service
from headrace.views.feeds import Feed
from headrace.views.jsonencoding import encode_provenance, encode_version
from headrace.views.offsets import Offsets
from headrace.views.stores.store import StoredView
from headrace.views.systemstatus import SystemStatus, TopicStatus, ViewStatus


def store_status(service: Service) -> SystemStatus:
    """Returns the status of topics and views. Nothing runs, so there are no rates and no stages.

    >>> store_status(Service({}, {}))
    {'topics': {}, 'views': {}, 'jobs': []}
    """
    return {
        "topics": {name: _topic(each.feed) for name, each in service.topics.items()},
        "views": {name: _view(each) for name, each in service.views.items()},
        "jobs": [],
    }


def _topic(feed: Feed) -> TopicStatus:
    starts, ends = feed.starts(), feed.ends()
    return {
        "partitions": [{"partition": each, "start": start, "end": ends[each]} for each, start in starts.items()],
        "groups": {name: {"offsets": at, "lag": _lag(starts, ends, at)} for name, at in feed.groups().items()},
        "archived": {},
        "records_per_second": None,
    }


def _lag(starts: Offsets, ends: Offsets, read: Offsets) -> int:
    return sum(end - read.get(partition, starts[partition]) for partition, end in ends.items())


def _view(view: StoredView) -> ViewStatus:
    return {
        "topic": None,
        "state": None,
        "error": None,
        "batches": None,
        "batch_seconds": None,
        "records_per_second": None,
        "lag": None,
        "stages": [],
        "graph": None,
        "bad": {},
        "provenance": encode_provenance(view.provenance()),
        "versions": [encode_version(each) for each in view.versions()],
    }
