"""The names by which others know the stream of a checkpoint, and the removal of all that has them. No Spark.

A log has consumer groups of the stream, which hold retention back, and fences of its sinks' producers.
"""

from __future__ import annotations

import glob
import json
import shutil
from pathlib import Path
from typing import Final

from headrace.log import Log
from headrace.log.producers import producer_id

MANIFEST: Final = "headrace-{:06d}.json"
"""The name of a checkpoint's manifest, by its number; the newest counts."""


def stream_name(checkpoint: str, stream: str) -> str:
    """Returns the name of a stream for others: the directory of its checkpoint, and the beginning of its id.

    >>> stream_name("/data/checkpoints/visits/", "5f0c9d8e7b6a")
    'visits-5f0c9d8e'
    """
    return f"{checkpoint.rstrip('/').rpartition('/')[2]}-{stream[:8]}"


def group_name(stream: str, source: str) -> str:
    """Returns the name of the consumer group of a source, by the name of the stream and that of the source."""
    return f"{stream}-{source}"


def sink_producer(stream: str, label: str) -> int:
    """Returns the producer of a sink that appends to a topic, by the id of the stream and the label of the sink."""
    return producer_id(f"{stream}/{label}")


def remove_stream(checkpoint: Path, *logs: Log) -> None:
    """Removes the checkpoint of a stream that nobody goes on with, and what logs have of it: groups and fences.

    Without their fences, processes that still run the stream are refused as well: the id of a stream is given once.
    """
    if manifests := sorted(checkpoint.glob(MANIFEST.replace("{:06d}", "*"))):
        manifest = json.loads(manifests[-1].read_bytes())
        groups = group_name(stream_name(str(checkpoint), manifest["stream"]), "")
        producers = [sink_producer(manifest["stream"], label) for label in manifest["sinks"]]
        for log in logs:
            for folder in log.groups.glob(f"{glob.escape(groups)}*"):
                shutil.rmtree(folder, ignore_errors=True)
            for topic in map(log.topic, log.topics()):
                for producer in producers:
                    topic.forget_producer(producer)
    shutil.rmtree(checkpoint, ignore_errors=True)  # last: whoever dies before it does all of it again
