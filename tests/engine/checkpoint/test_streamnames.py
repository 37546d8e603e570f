"""What is removed with the stream of a checkpoint: its groups and fences, and those of no other."""

from __future__ import annotations

import json
import pathlib

import pytest

from headrace.engine.checkpoint.streamnames import MANIFEST, group_name, remove_stream, sink_producer, stream_name
from headrace.log import FencedError, Group, Log
from headrace.log.offsets import groups_of

IDS = ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb")


def checkpoint(folder: pathlib.Path, *ids: str) -> pathlib.Path:
    folder.mkdir()
    for number, stream in enumerate(ids):  # a copy of a checkpoint has the manifests of what it was copied from
        (folder / MANIFEST.format(number)).write_text(json.dumps({"stream": stream, "sinks": {"sums/write": {}}}))
    return folder


def test_a_stream_is_removed_with_its_groups_and_fences(log: Log, tmp_path: pathlib.Path) -> None:
    visits, sums = log.create("visits"), log.create("sums")
    copied, original = checkpoint(tmp_path / "visits", *IDS), checkpoint(tmp_path / "visit", IDS[0])
    for folder, stream in ((copied, IDS[1]), (original, IDS[0])):
        Group(log, "visits", group_name(stream_name(str(folder), stream), "read")).commit({0: 0})
    Group(log, "visits", "billing").commit({0: 0})
    fence, other = (sums.take_over(sink_producer(stream, "sums/write")) for stream in reversed(IDS))
    remove_stream(copied, log)
    assert not copied.exists()
    assert groups_of(log.groups, "visits") == ["billing", "visit-aaaaaaaa-read"]
    batch = sums.batch([1], timestamps=[0])
    with pytest.raises(FencedError, match="appends with token 1, but the newest that the topic knows is 0"):
        sums.partition(0).append(batch, fence=fence)
    sums.partition(0).append(batch, fence=other)
    remove_stream(original, log)
    assert groups_of(log.groups, "visits") == ["billing"]
    assert [path.name for path in (sums.folder / "fences").iterdir()] == ["lock"]
    remove_stream(tmp_path / "never", log)  # which does nothing
    assert visits.needed(0) == 0
