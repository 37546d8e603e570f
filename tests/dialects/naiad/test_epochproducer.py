"""Producers of epochs: what they write, how they go on, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace import naiad
from headrace.log import Log, Producer
from headrace.log.segments import Segment
from headrace.log.watermarkrecords import WriterWatermark, split_watermarks
from headrace.model.times import MAX_TIME, SECOND


def said(topic: object, partition: int) -> list[tuple[str, int]]:
    """Who says how far he is in a partition, in seconds."""
    batches = [batch for _, batch in topic.partition(partition).read(0)]  # type: ignore[attr-defined]
    every: list[WriterWatermark] = [each for batch in batches for each in split_watermarks(batch)[1]]
    return [(each.writer, each.watermark // SECOND) for each in every]


def test_a_producer_counts_from_when_it_is_made_and_goes_on_by_its_name(tmp_path: Path) -> None:
    topic = Log(tmp_path).create("words", partitions=2)
    one, other = naiad.Producer(topic, "one"), naiad.Producer(topic, "other")
    one.send("a", partition=1)
    one.advance_to(3)
    one.advance_to(3)  # is there already
    assert said(topic, 0) == said(topic, 1) == [("one", 0), ("other", 0), ("one", 3)]
    again = naiad.Producer(topic, "one")
    assert (again.epoch, other.epoch) == (3, 0)
    again.close()
    again.close()
    assert said(topic, 1)[-1] == ("one", MAX_TIME // SECOND) and len(said(topic, 1)) == 4
    with pytest.raises(hr.PipelineError, match="'one' has closed all of its epochs"):
        naiad.Producer(topic, "one").send("b")


def test_what_a_process_that_died_did_not_say_in_all_partitions_is_made_up_for(tmp_path: Path) -> None:
    topic = Log(tmp_path).create("words", partitions=3)
    naiad.Producer(topic, "one").advance_to(2)
    dying = Producer(topic, "one")
    dying._append_batch(1, dying._said(5 * SECOND))
    assert naiad.Producer(topic, "one").epoch == 5
    assert [said(topic, partition)[-1] for partition in range(3)] == [("one", 5)] * 3


def test_a_producer_that_starts_again_reads_back_to_what_it_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Log(tmp_path).create("words", partitions=2, segment_bytes=1000)
    for name in ("one", "other"):
        producer = naiad.Producer(topic, name)
        for epoch in range(1, 30):
            producer.send("word", partition=epoch % 2)
            producer.advance_to(epoch)
        producer.send("open", partition=0)
        producer.flush()
    read: list[int] = []
    read_batch = Segment.read
    monkeypatch.setattr(Segment, "read", lambda *args: read.append(1) or read_batch(*args))  # type: ignore[func-returns-value]
    assert naiad.Producer(topic, "one").epoch == 29
    assert len(read) <= 2 * 3  # by two calls each: the open record and what was said in one partition, and in the other


def test_closed_epochs_stay_closed(tmp_path: Path) -> None:
    topic = Log(tmp_path).create("words")
    producer = naiad.Producer(topic, "one")
    producer.advance_to(4)
    young = Log(tmp_path).create("young", keep_age=9)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: producer.send("a", epoch=3), "sends a record of epoch 3, but it is in epoch 4"),
        (lambda: producer.advance_to(3), "advances to epoch 3, but it is in epoch 4"),
        (lambda: producer.advance_to(4.5), "epochs are whole numbers"),  # type: ignore[arg-type]
        (lambda: naiad.Producer(topic, ""), "has a name, by which it goes on"),
        (lambda: naiad.Producer(young, "one"), "removes records by age"),
    ]
    for refused, why in calls:
        with pytest.raises(hr.PipelineError, match=why):
            refused()
    producer.flush()
    assert list(topic.read(0)) == []
    with pytest.raises(hr.HeadraceError, match="a producer without a name cannot say how far it is"):
        Producer(topic).advance_watermark(3)
