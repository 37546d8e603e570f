"""Tests which records of a topic a micro-batch reads, and how tasks share them."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges import topicranges
from headrace.edges.topicranges import divided_ranges, end_offsets, limited_end, topic_at
from headrace.log import Log, LogError, Topic

counts = st.lists(st.integers(0, 50), min_size=1, max_size=5)


def topic_of(sizes: list[list[int]]) -> Topic:
    """Creates a topic whose partitions have batches of these sizes."""
    topic = Log(tempfile.mkdtemp()).create("t", partitions=len(sizes), values="bytes")
    for number, batches in enumerate(sizes):
        for size in batches:
            topic.append(number, topic.batch([b""] * size, timestamps=[0] * size))
    return topic


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=5), st.integers(1, 120))
def test_a_batch_takes_its_bound_or_all_there_is_and_of_each_its_part(spans: list[tuple[int, int]], most: int) -> None:
    start = {number: first for number, (first, _) in enumerate(spans)}
    end = {number: first + count for number, (first, count) in enumerate(spans)}
    total = sum(count for _, count in spans)
    taken = {number: at - start[number] for number, at in limited_end(start, end, most).items()}
    assert sum(taken.values()) == min(most, total)
    for number, (_, count) in enumerate(spans):
        assert 0 <= taken[number] <= count
        assert total <= most or abs(taken[number] - count * most / total) < 1
    assert limited_end(start, end, None) == end


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=4), st.integers(1, 5), st.data())
def test_tasks_share_all_of_it_in_whole_batches(sizes: list[list[int]], tasks: int, data: st.DataObject) -> None:
    topic = topic_of(sizes)
    end = end_offsets(topic)
    start = {number: data.draw(st.integers(0, at)) for number, at in end.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topicranges, "_RECORDS_PER_TASK", 3)
        shares = divided_ranges(topic, start, end, tasks)
    assert len(shares) <= tasks
    assert all(shares)
    total = sum(end.values()) - sum(start.values())
    largest = max((size for batches in sizes for size in batches), default=0)
    for share in shares:
        assert sum(each.until - each.first for each in share) < max(-(-total // tasks), 3) + largest
    for number, batches in enumerate(sizes):
        ranges = [each for share in shares for each in share if each.partition == number]
        borders = {sum(batches[:count]) for count in range(len(batches) + 1)} | {start[number]}
        assert {each.first for each in ranges} | {each.until for each in ranges} <= borders
        assert [each.until for each in ranges[:-1]] == [each.first for each in ranges[1:]]
        assert sum(each.until - each.first for each in ranges) == end[number] - start[number]


def test_what_retention_has_removed_is_named(log: Log) -> None:
    topic = log.create("t", values="bytes", segment_bytes=1, keep_bytes=1)
    for _ in range(3):
        topic.append(0, topic.batch([b"x"], timestamps=[0]))
    topic.retain()
    with pytest.raises(LogError, match=r"t/0: offset 1, where .* goes on, is gone: .* before 2; .*new checkpoint"):
        divided_ranges(topic, {0: 1}, {0: 3}, 2)


def test_a_topic_that_was_made_anew_is_another(log: Log) -> None:
    log.create("t", values="bytes")
    before = topic_at(str(log.path), "t")
    assert topic_at(str(log.path), "t") is before
    log.delete("t")
    with pytest.raises(LogError, match="there is no topic 't'"):
        topic_at(str(log.path), "t")
    log.create("t", values="json")
    assert topic_at(str(log.path), "t").settings.values == "json"
