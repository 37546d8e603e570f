"""The embedded log: topics with partitions in a directory, for any number of processes of one machine."""

from headrace.log.errors import CorruptionError, FencedError, LogError
from headrace.log.groups import Consumer, Group
from headrace.log.producers import Producer
from headrace.log.topics import Log, Topic
from headrace.log.values import Record

__all__ = ["Consumer", "CorruptionError", "FencedError", "Group", "Log", "LogError", "Producer", "Record", "Topic"]
