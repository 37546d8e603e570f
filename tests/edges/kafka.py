"""Starts a Kafka broker on this machine, one process that is also the controller, and a few clients of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.engine.spark.kafkajars import cache
from tests.ports import free_port

VERSION: Final = "4.1.1"
_CLUSTER: Final = "aGVhZHJhY2UtdGVzdHMtMQ"  # 16 bytes in base64
_QUIET: Final = {"log_level": 0}
_PATIENCE: Final = 60  # seconds for whatever the broker is asked
_SETTINGS: Final = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/data
log.retention.ms=-1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def jars() -> Path:
    """Returns the directory of the broker's jars, if they were fetched."""
    return cache() / f"broker-{VERSION}"


class Broker:
    """A broker in a directory. It can be stopped and started again: its data and its address stay."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._process = folder, None
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        (folder / "settings").write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(folder / "settings")),
            check=True,
            capture_output=True,
            timeout=_PATIENCE,
        )

    def start(self) -> None:
        """Starts the broker and waits until it answers."""
        with (self.folder / "output").open("ab") as output:
            command = self._java("kafka.Kafka", str(self.folder / "settings"))
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + _PATIENCE
        admin = AdminClient({"bootstrap.servers": self.address, **_QUIET})
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "output").read_text()[-4000:]) from None

    def stop(self) -> None:
        """Stops the broker as an operator would; it loses nothing that it has acknowledged."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1) -> str:
        """Creates a topic and returns its URI."""
        admin = AdminClient({"bootstrap.servers": self.address, **_QUIET})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_PATIENCE)
        _wait_for_partitions(admin, topic, partitions)
        return f"kafka://{self.address}/{topic}"

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions to a topic."""
        admin = AdminClient({"bootstrap.servers": self.address, **_QUIET})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_PATIENCE)
        _wait_for_partitions(admin, topic, partitions)

    def send(self, topic: str, *records: tuple[bytes | None, bytes, int], partition: int = -1) -> None:
        """Sends records of key, value and time in milliseconds, and waits until the broker has them."""
        producer = Producer({"bootstrap.servers": self.address, "partitioner": "murmur2_random", **_QUIET})
        refused: list[Any] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                refused.append(error)

        for key, value, milliseconds in records:
            producer.produce(
                topic, key=key, value=value, timestamp=milliseconds, partition=partition, on_delivery=on_delivery
            )
        assert (producer.flush(_PATIENCE), refused) == (0, [])

    def contents(self, topic: str, *, isolation: str = "read_committed") -> list[Any]:
        """Returns all records of a topic, as a consumer with this isolation level reads them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                **_QUIET,
            }
        )
        partitions = list(consumer.list_topics(topic, _PATIENCE).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        messages: list[Any] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(_PATIENCE)
            assert message is not None, f"no answer from {self.address}"
            if message.error() is None:
                messages.append(message)
            else:  # the end of a partition
                ended.add(message.partition())
        consumer.close()
        return messages

    def _java(self, *command: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = shutil.which("java") if home is None else f"{home}/bin/java"
        assert java is not None
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [java, *small, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars()}/*", *command]


def _wait_for_partitions(admin: AdminClient, topic: str, partitions: int) -> None:
    """Waits until the broker itself knows what its controller has created, which takes long on a loaded machine."""
    deadline = time.monotonic() + _PATIENCE
    while len(admin.list_topics(topic, _PATIENCE).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline, f"{topic} has not got {partitions} partitions"
        time.sleep(0.05)
