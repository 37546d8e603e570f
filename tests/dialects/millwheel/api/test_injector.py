"""Injectors: watermarks they say, batches sent again, and two processes with one name."""

from __future__ import annotations

import pathlib

import pytest

import headrace as hr
from headrace import millwheel as mw
from headrace.edges.numberedbatches import LogBatches
from headrace.log import FencedError, Log, Topic
from headrace.log.values import WATERMARK_KEY
from headrace.log.watermarkrecords import WriterWatermark, split_watermarks
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND


@pytest.fixture
def topic(tmp_path: pathlib.Path) -> Topic:
    return Log(tmp_path / "log").create("queries", partitions=2)


def injector(topic: Topic, **options: object) -> mw.Injector:
    return mw.Injector("queries", log=topic.log.path, name="frontend", **options)  # type: ignore[arg-type]


def said(topic: Topic, partition: int) -> list[int]:
    """The watermarks in a partition, in seconds."""
    found: list[WriterWatermark] = []
    for _, batch in topic.partition(partition).read(0):
        found += split_watermarks(batch)[1]
    assert {each.writer for each in found} <= {"injector/frontend"}
    return [each.watermark // SECOND if MIN_TIME < each.watermark < MAX_TIME else each.watermark for each in found]


def values(topic: Topic) -> list[object]:
    return sorted(str(record.value) for number in (0, 1) for record in topic.read(number))


def test_a_perfect_watermark_is_said_in_every_partition(topic: Topic) -> None:
    with injector(topic) as perfect:
        perfect.send("a", timestamp=3, key="k")
        perfect.advance(5)
        perfect.flush()
        perfect.advance(4)  # which changes nothing
        perfect.send("b", timestamp=5)
        perfect.finish()
        with pytest.raises(mw.ComputationError, match="has said that it is at"):
            perfect.send("c", timestamp=4)
    assert values(topic) == ["a", "b"]
    for partition in (0, 1):
        assert said(topic, partition)[:2] == [5, MAX_TIME]
    assert all(not (record.key or b"").startswith(WATERMARK_KEY) for record in topic.read(0))


def test_a_heuristic_watermark_follows_the_times(topic: Topic) -> None:
    heuristic = injector(topic, watermark=mw.Heuristic(hr.BoundedDisorder("2 seconds")))
    for batch in ([10, 7], [9], [3]):
        for second in batch:
            heuristic.send(second, timestamp=second)
        heuristic.flush()
    assert said(topic, 0) == said(topic, 1) == [8, 8, 8]
    assert (heuristic.sent, heuristic.late) == (4, 1)
    with pytest.raises(mw.ComputationError, match="estimates its watermark itself; leave advance out"):
        heuristic.advance(7)
    with pytest.raises(mw.ComputationError, match=r"Percentile\(0.9\) learns from all that a stream reads"):
        mw.Heuristic(hr.Percentile(0.9))
    with pytest.raises(mw.ComputationError, match=r"watermark is mw\.Perfect"):
        injector(topic, watermark="perfect")


def test_a_batch_that_is_sent_again_is_in_the_stream_once(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(batch: int) -> mw.Injector:
        again = injector(topic)
        assert again.next == batch
        for number in range(6):
            again.send(f"{batch}/{number}", timestamp=batch, key=f"k{number}")
        again.advance(batch)
        again.flush()
        return again

    send(0)
    before = topic.partition(1).next_offset()
    with monkeypatch.context() as patched:
        refused = OSError(28, "No space left on device")
        patched.setattr("headrace.log.segments.Segment.append", failing_at(2, refused))
        with pytest.raises(OSError, match="No space"):
            send(1)
    assert topic.partition(1).next_offset() == before  # it is in the first partition only
    send(1)
    assert values(topic) == sorted(f"{batch}/{number}" for batch in (0, 1) for number in range(6))
    send(2)


def failing_at(call: int, error: OSError) -> object:
    from headrace.log.segments import Segment

    original, calls = Segment.append, [0]

    def append(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise error
        return original(*args, **kwargs)  # type: ignore[arg-type]

    return append


def test_of_two_injectors_the_older_is_refused(topic: Topic) -> None:
    older = injector(topic)
    older.send("a", timestamp=1)
    newer = injector(topic)
    newer.send("b", timestamp=1)
    newer.flush()
    with pytest.raises(FencedError, match="appends with token 1, but another has taken over with token 2"):
        older.flush()
    assert values(topic) == ["b"]


def test_leaving_a_block_takes_no_number_that_a_batch_is_to_have(topic: Topic) -> None:
    for end in (2, 4):
        with injector(topic) as each:
            for batch in range(each.next, end):
                each.send(batch, timestamp=batch)
                each.advance(batch + 1)
                each.flush()
        assert each.next == end
    assert values(topic) == ["0", "1", "2", "3"]


def test_nothing_is_added_to_a_batch_that_some_partitions_have(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    each = injector(topic)
    each.send("a", timestamp=1)
    with monkeypatch.context() as patched:
        assert isinstance(each.stream, LogBatches)
        patched.setattr(each.stream.topic.partitions[1], "append", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            each.flush()
    with pytest.raises(mw.ComputationError, match="could not append batch 0 to all partitions"):
        each.send("b", timestamp=1)
    each.flush()
    each.send("b", timestamp=1)
    each.flush()
    assert values(topic) == ["a", "b"]
