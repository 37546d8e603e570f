"""Starts a Kafka broker on this machine, one process that is also the controller, and a few clients of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.engine.spark.kafkajars import cache
from tests.ports import free_port

VERSION: Final = "4.1.1"
_CLUSTER: Final = "aGVhZHJhY2UtdGVzdHMtMQ"  # 16 bytes in base64
_QUIET: Final = {"log_level": 0}
USER, PASSWORD = "ann", "plain-secret"
_PATIENCE: Final = 60  # seconds for whatever the broker is asked
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SETTINGS: Final = """
process.roles=broker,controller
node.id=1
listeners={listeners}
listener.security.protocol.map={protocols}
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
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
"""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")


def jars() -> Path:
    """Returns the directory of the broker's jars, if they were fetched."""
    return cache() / f"broker-{VERSION}"


class Broker:
    """A broker in a directory. It can be stopped and started again: its data and its address stay.

    `addresses` has one for each security protocol of Kafka, `address` that without any. In the directory are `ca.pem`,
    and `client.pem` and `client.key`, for which the protocol SSL asks. The only user from the beginning is USER, with
    PASSWORD, by the mechanism PLAIN.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._process = folder, None
        controller = free_port()
        self.addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in _PROTOCOLS}
        self.address = self.addresses["PLAINTEXT"]
        listeners = {**self.addresses, "CONTROLLER": f"127.0.0.1:{controller}"}
        listed = ",".join(f"{name}://{address}" for name, address in listeners.items())
        protocols = ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in _PROTOCOLS)])
        settings = _SETTINGS.format(listeners=listed, protocols=protocols, controller=controller, folder=folder)
        for name in ("sasl_ssl", "sasl_plaintext"):
            settings += f'listener.name.{name}.plain.sasl.jaas.config={_PLAIN} required user_{USER}="{PASSWORD}";\n'
            for strength in ("256", "512"):
                settings += f"listener.name.{name}.scram-sha-{strength}.sasl.jaas.config={_SCRAM} required;\n"
        (folder / "settings").write_text(settings)
        make_certificates(folder)
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

    def add_user(self, name: str, password: str) -> None:
        """Adds a user, or changes the password, for the SCRAM mechanisms."""
        admin = AdminClient({"bootstrap.servers": self.address, **_QUIET})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), password.encode())
            admin.alter_user_scram_credentials([wanted])[name].result(_PATIENCE)

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


def make_certificates(folder: Path) -> None:
    """Makes an authority, and certificates that it signs for the broker and for a client, by openssl.

    `encrypted.key` is the client's key, encrypted with PASSWORD, in the only way that Java 17 reads, too.
    """
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name, options in (("ca", []), ("broker", signed), ("client", signed)):
        names = ["-subj", f"/CN=headrace-{name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        command = ["openssl", "req", "-x509", *curve, *options, *names]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_PATIENCE)
    cipher, files = ["-v1", "PBE-SHA1-3DES"], ["-in", "client.key", "-out", "encrypted.key"]
    encrypt = ["openssl", "pkcs8", "-topk8", *cipher, *files, "-passout", f"pass:{PASSWORD}"]
    subprocess.run(encrypt, cwd=folder, check=True, capture_output=True, timeout=_PATIENCE)
    with (folder / "broker.pem").open("a") as broker:  # Kafka reads key and certificate from one file
        broker.write((folder / "broker.key").read_text())


def _wait_for_partitions(admin: AdminClient, topic: str, partitions: int) -> None:
    """Waits until the broker itself knows what its controller has created, which takes long on a loaded machine."""
    deadline = time.monotonic() + _PATIENCE
    while len(admin.list_topics(topic, _PATIENCE).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline, f"{topic} has not got {partitions} partitions"
        time.sleep(0.05)
