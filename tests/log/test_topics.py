"""Topics, producers and groups of an embedded log."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log import Consumer, FencedError, Group, Log, LogError, Producer
from headrace.log.fences import Fence
from headrace.log.groups import Assignment, start_of
from headrace.log.partitioning import partition_of, partitions_of
from headrace.log.partitions import Partition


@given(keys=st.lists(st.binary(max_size=40), min_size=1, max_size=20), partitions=st.integers(1, 50))
def test_one_key_is_where_an_array_of_keys_has_it(keys: list[bytes], partitions: int) -> None:
    assert [partition_of(key, partitions) for key in keys] == partitions_of(pa.array(keys), partitions).tolist()


def test_topics_are_listed_and_removed(log: Log) -> None:
    log.create("visits", partitions=3)
    log.create("orders", values="bytes")
    assert log.topics() == ["orders", "visits"]
    assert Log(log.path).topic("visits").settings.partitions == 3
    log.delete("orders")
    assert log.topics() == ["visits"]


def test_a_topic_of_another_format_is_refused_and_one_without_a_number_is_the_first(log: Log) -> None:
    meta = log.create("visits").folder / "topic.json"
    held = json.loads(meta.read_text())
    meta.write_text(json.dumps(held | {"format": 2, "codec": "zstd"}))
    with pytest.raises(LogError, match=r"the topic 'visits' in .* has format 2, .*copy its records with that one"):
        log.topic("visits")
    del held["format"]
    meta.write_text(json.dumps(held))
    assert log.topic("visits").settings.partitions == 1


@pytest.mark.parametrize(
    ("do", "match"),
    [
        (lambda log: log.topic("nothing"), r"no topic 'nothing' .*topics: visits.*; create it with `headrace topic"),
        (lambda log: log.create("visits"), r"'visits' exists already"),
        (lambda log: log.create("a/b"), r"letters, digits.*got 'a/b'"),
        (lambda log: log.create("x", partitions=0), r"at least one partition, got 0"),
        (lambda log: log.create("x", values="user text"), r"columns cannot be 'text'; there are string, boolean"),
        (lambda log: list(log.topic("visits").read(9)), r"visits has no partition 9; it has 0 to 1"),
        (lambda log: Producer(log.topic("visits")).send(1, partition=5), r"no partition 5"),
    ],
)
def test_what_cannot_be_is_told(log: Log, do: Any, match: str) -> None:
    log.create("visits", partitions=2)
    with pytest.raises(LogError, match=match):
        do(log)
    assert log.topics() == ["visits"]


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ("bytes", [b"a", b"\x00\xff"]),
        ("json", [{"a": [1, 2.5, None]}, "text", 7]),
        ("user string, n bigint", [{"user": "ann", "n": 1}, {"user": None, "n": 2}]),
    ],
)
def test_values_come_back_as_they_were(log: Log, values: str, sent: list[Any]) -> None:
    topic = log.create("visits", values=values)
    with Producer(topic) as producer:
        for number, value in enumerate(sent):
            producer.send(value, key=f"k{number}", timestamp=number, headers={"from": b"test"})
    read = list(topic.read(0))
    assert [record.value for record in read] == sent
    assert [(record.offset, record.timestamp, record.key) for record in read] == [
        (number, number, f"k{number}".encode()) for number in range(len(sent))
    ]
    assert read[0].headers == {"from": b"test"}


def test_a_value_of_another_kind_is_refused_and_nothing_written(log: Log) -> None:
    topic = log.create("visits", values="user string, n bigint")
    producer = Producer(topic)
    producer.send({"user": "ann", "n": "many"}, timestamp=0)
    with pytest.raises(LogError, match=r"a value is not user string, n bigint: .*many"):
        producer.flush()
    assert topic.partition(0).next_offset() == 0


def test_keys_stay_in_their_partition_and_others_take_turns(log: Log) -> None:
    topic = log.create("visits", partitions=3)
    with Producer(topic, batch=4) as producer:
        for number in range(60):
            producer.send(number, key=f"user{number % 10}", timestamp=number)
            producer.send(number, timestamp=number)
    read = [record for partition in range(3) for record in topic.read(partition)]
    homes: dict[bytes, set[int]] = {}
    for record in read:
        if record.key is not None:
            homes.setdefault(record.key, set()).add(record.partition)
    assert len(homes) == 10
    assert all(len(partitions) == 1 for partitions in homes.values())
    unkeyed = Counter(record.partition for record in read if record.key is None)
    assert sum(unkeyed.values()) == 60
    assert min(unkeyed.values()) >= 12


def test_a_full_disk_loses_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = log.create("visits")
    producer = Producer(topic)
    producer.send("a", timestamp=0)
    with monkeypatch.context() as patched:

        def full(*args: Any, **named: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patched.setattr(Partition, "append", full)
        with pytest.raises(
            LogError, match=r"visits/0: cannot append 1 records: No space left on device; the producer still has them"
        ):
            producer.flush()
    producer.send("b", timestamp=1)
    producer.flush()
    assert [record.value for record in topic.read(0)] == ["a", "b"]


def test_a_named_producer_goes_on_after_a_restart(log: Log) -> None:
    topic = log.create("visits")
    for value in ("a", "b"):
        with Producer(topic, "shop") as producer:
            producer.send(value, timestamp=0)
    assert [record.value for record in topic.read(0)] == ["a", "b"]


# Groups


def filled(log: Log, partitions: int, records: int) -> None:
    topic = log.create("visits", partitions=partitions)
    with Producer(topic) as producer:
        for number in range(records):
            producer.send(number, key=str(number), timestamp=number)


def test_every_group_gets_every_record_and_members_share_them(log: Log) -> None:
    filled(log, 4, 100)
    with Consumer(log, "visits", "one") as alone:
        assert sorted(record.value for record in alone.poll(1000)) == list(range(100))
    first, second = Consumer(log, "visits", "two"), Consumer(log, "visits", "two")
    first.poll(0)  # in which it lets two partitions go
    read = first.poll(1000) + second.poll(1000)
    assert sorted(record.value for record in read) == list(range(100))
    assert {record.partition for record in first.poll(0)} == set()
    assert len(first.positions) == len(second.positions) == 2
    first.close()
    second.close()


def test_records_are_read_on_after_a_member_left(log: Log) -> None:
    filled(log, 2, 50)
    first = Consumer(log, "visits", "g")
    second = Consumer(log, "visits", "g")
    seen = [record.value for record in first.poll(7) + second.poll(5) + first.poll(3)]
    second.close()
    while records := first.poll(10):
        seen += [record.value for record in records]
    assert sorted(seen) == list(range(50))
    first.close()


def test_without_auto_commit_what_was_not_committed_comes_again(log: Log) -> None:
    filled(log, 1, 10)
    with Consumer(log, "visits", "g", auto_commit=False) as consumer:
        consumer.poll(4)
        consumer.commit()
        consumer.poll(3)
    with Consumer(log, "visits", "g") as consumer:
        assert consumer.poll(1)[0].value == 4


def test_what_a_member_failed_on_comes_again(log: Log) -> None:
    filled(log, 1, 10)
    with pytest.raises(ZeroDivisionError), Consumer(log, "visits", "g") as consumer:
        consumer.poll(4)
        _ = 1 / 0
    assert Group(log, "visits", "g").lag() == {0: 10}
    assert Group(log, "visits", "g").members() == []


def _poll_and_wait(path: Path, pipe: Any) -> None:
    consumer = Consumer(Log(path), "visits", "g")
    values = [record.value for record in consumer.poll(10)]
    consumer.poll(0)  # commits them
    values += [record.value for record in consumer.poll(5)]  # and not these
    pipe.send(values)
    pipe.recv()


def test_what_a_killed_member_had_goes_to_the_others(log: Log) -> None:
    filled(log, 2, 40)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_poll_and_wait, args=(log.path, theirs))
    process.start()
    seen = ours.recv()
    assert len(Group(log, "visits", "g").members()) == 1
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with Consumer(log, "visits", "g") as consumer:
        rest = [record.value for record in consumer.poll(100)]
    assert Counter(seen[:10] + rest) == Counter(range(40))


def test_assignments_are_even_and_stay_where_they_can() -> None:
    assignment = Assignment()
    for members in (["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"], ["b"], ["b", "d", "e", "f"]):
        before = dict(assignment.heirs)
        assignment.rebalance(7, members)
        load = Counter(assignment.heirs.values())
        assert sorted(assignment.heirs, key=int) == [str(number) for number in range(7)]
        assert max(load.values()) - min(load[member] for member in members) <= 1
        stayed = sum(before.get(number) == member for number, member in assignment.heirs.items())
        assert stayed >= min(sum(owner in members for owner in before.values()), 7 // len(members))


def test_reset_by_start_end_and_time(log: Log) -> None:
    filled(log, 1, 10)
    group = Group(log, "visits", "g")
    assert group.reset("latest") == {0: 10}
    assert group.lag() == {0: 0}
    assert group.reset(4) == {0: 4}
    assert group.lag() == {0: 6}
    with Consumer(log, "visits", "g"), pytest.raises(LogError, match=r"has 1 members that read; stop them first"):
        group.reset("earliest")


def test_retention_keeps_what_a_group_needs(log: Log) -> None:
    log = Log(log.path, clock=lambda: 1000)
    topic = log.create("visits", segment_bytes=1, keep_age=10)
    Group(log, "visits", "g").commit({0: 0})
    for number in range(5):
        topic.append(0, topic.batch([number], timestamps=[number]))
    assert topic.retain() == 0
    Group(log, "visits", "g").commit({0: 2})
    assert topic.retain() == 2
    assert start_of(topic, 0, "earliest") == 2
    assert topic.retain(force=True) == 2
    assert [record.value for record in topic.read(0)] == [4]


def test_a_group_needs_what_it_is_about_to_read_before_it_has_read_anything(log: Log) -> None:
    log = Log(log.path, clock=lambda: 1000)
    topic = log.create("visits", segment_bytes=1, keep_age=10)
    with Consumer(log, "visits", "g") as consumer:
        for number in range(3):
            topic.append(0, topic.batch([number], timestamps=[number]))
        assert [record.value for record in consumer.poll(2)] == [0, 1]
        topic.append(0, topic.batch([3], timestamps=[3]))
        assert [record.value for record in topic.read(0)] == [0, 1, 2, 3]
        consumer.poll(0)  # commits two
        topic.append(0, topic.batch([4], timestamps=[4]))
        assert [record.value for record in topic.read(0)] == [2, 3, 4]


def test_a_group_that_starts_at_the_end_misses_nothing_after_a_crash(log: Log) -> None:
    filled(log, 1, 3)
    with pytest.raises(ZeroDivisionError), Consumer(log, "visits", "g", start="latest"):
        topic = log.topic("visits")
        topic.append(0, topic.batch(["new"], timestamps=[9]))
        _ = 1 / 0
    with Consumer(log, "visits", "g", start="latest") as consumer:
        assert [record.value for record in consumer.poll()] == ["new"]


def test_whoever_takes_a_producer_over_is_the_only_one_who_appends(log: Log) -> None:
    topic = log.create("visits", partitions=2)

    def append(number: int, fence: Fence) -> None:
        batch = topic.batch([number], timestamps=[number])
        topic.partition(number % 2).append(batch, producer=7, sequence=number, fence=fence)

    older = topic.take_over(7)
    append(0, older)
    newer = log.topic("visits").take_over(7)  # as another process would
    for number in (0, 1):  # whether it is in the log already or not
        with pytest.raises(FencedError, match=rf"visits/{number}: this process appends with token 1, but another"):
            append(number, older)
    for number in (0, 1):
        append(number, newer)
    append(3, topic.take_over(8))  # another producer has nothing to do with it
    append(5, newer)
    assert [record.value for number in (0, 1) for record in topic.read(number)] == [0, 1, 3, 5]
