"""What a store and a log tell by themselves, in the form of a running system's status."""

from __future__ import annotations

from typing import Any

from headrace.log import offsets
from headrace.server import encoding
from headrace.server.ingestion import Ingestion
from headrace.server.service import Service
from headrace.views.stores.store import StoredView


def standing(service: Service) -> dict[str, Any]:
    """How far everything is, as far as the store and the log know. Nothing runs, so there are no rates and no stages.

    >>> standing(Service({}, {}))
    {'topics': {}, 'views': {}, 'jobs': []}
    """
    return {
        "topics": {name: _topic(each) for name, each in service.topics.items()},
        "views": {name: _view(each) for name, each in service.views.items()},
        "jobs": [],
    }


def _topic(ingestion: Ingestion) -> dict[str, Any]:
    bounds, topic = ingestion.bounds(), ingestion.topic
    groups = {}
    for group in offsets.groups_of(topic.log.groups, topic.name):
        read = offsets.committed(topic.log.groups / group / topic.name)
        lag = sum(end - read.get(partition, start) for partition, (start, end) in bounds.items())
        groups[group] = {"offsets": {str(partition): offset for partition, offset in read.items()}, "lag": lag}
    return {
        "partitions": [{"partition": each, "start": start, "end": end} for each, (start, end) in bounds.items()],
        "groups": groups,
        "archived": {},
        "records_per_second": None,
    }


def _view(view: StoredView) -> dict[str, Any]:
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
        "provenance": encoding.provenance(view.provenance()),
        "versions": [encoding.version(each) for each in view.versions()],
    }
