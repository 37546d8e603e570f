"""Tests pipelines that reach a real Kafka broker by SASL and TLS, by Spark's connector and by our own client."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.edges import kafkaclient
from headrace.engine.connectors import kafkareader
from headrace.model.topics import address
from headrace.views.feeds.feed import feed_of
from tests.edges.kafka import PASSWORD, USER
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker

LIKE_OTHERS = {"scram 256", "encrypted key"}  # what only FULL reads and writes by
SECRET = 'sc"ram\\-secret'  # with what JAAS has to escape


def securities(broker: Broker) -> dict[str, hr.KafkaSecurity]:
    """A way in for each protocol and mechanism."""
    ca, certificate, key = (str(broker.folder / name) for name in ("ca.pem", "client.pem", "client.key"))
    scram = hr.KafkaSecurity(username="bob", password=SECRET, ca=ca)
    return {
        "scram 512": scram,
        "scram 256": replace(scram, mechanism="SCRAM-SHA-256"),
        "plain": hr.KafkaSecurity(username=USER, password=PASSWORD, mechanism="PLAIN", ca=ca),
        "certificate": hr.KafkaSecurity(ca=ca, certificate=certificate, key=key),
        "encrypted key": hr.KafkaSecurity(
            ca=ca, certificate=certificate, key=str(broker.folder / "encrypted.key"), key_password=PASSWORD
        ),
        "no tls": hr.KafkaSecurity(username="bob", password=SECRET, tls=False),
    }


def uri(broker: Broker, security: hr.KafkaSecurity, topic: str) -> str:
    return f"kafka://{broker.addresses[security.protocol]}/{topic}"


@only_full("other ways to the same broker")
@pytest.mark.slow("a batch for each way into a broker, and a stream")
def test_each_way_in_reads_and_writes(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """From topic to topic in a batch for each, then in a stream; and no text anywhere has a password."""
    caplog.set_level(logging.DEBUG)
    broker.create("safe-in")
    broker.send("safe-in", (None, b'{"n": 1}', 1000), (None, b'{"n": 2}', 2000))
    broker.add_user("bob", SECRET)
    texts = []
    with SparkLog(spark, tmp_path / "spark.log"):
        for name, security in securities(broker).items():
            if name in LIKE_OTHERS and not FULL:
                continue
            sink = f"safe-{name.replace(' ', '-')}"
            broker.create(sink)
            p = hr.Pipeline(spark=spark)
            read = p | hr.Read(uri(broker, security, "safe-in"), schema="n int", end="latest", security=security)
            read | hr.Write(uri(broker, security, sink), security=security)
            texts += [p.explain(), repr(p), str(p.graph().nodes), repr([vars(node.transform) for node in p.graph()])]
            p.run().wait()
            assert sorted(json.loads(each.value())["n"] for each in broker.contents(sink)) == [1, 2], name

        scram = securities(broker)["scram 512"]
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadTopic(uri(broker, scram, "safe-in"), schema="n int", security=scram)
        read | hr.WriteTopic(uri(broker, scram, "safe-plain"), security=scram)
        handle = p.run(checkpoint=str(tmp_path / "checkpoint"))
        handle.query.processAllAvailable()
        plan = handle.query._jsq.explainInternal(True)
        texts += [repr(handle), str(handle.status()), str(handle.query.lastProgress), plan]
        handle.stop()
        where = address(uri(broker, scram, "safe-in"), security=scram)
        texts.append(kafkareader.between(spark, where, {0: 0}, {0: 2})._jdf.queryExecution().toString())
    assert len(broker.contents("safe-plain")) == 4
    texts += [caplog.text, *capfd.readouterr()]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts += [path.read_bytes().decode("latin-1") for path in files]
    assert "ConsumerConfig" in (tmp_path / "spark.log").read_text()  # which Kafka's client prints
    spellings = {PASSWORD, SECRET, SECRET.replace("\\", r"\\").replace('"', r"\""), json.dumps(SECRET)[1:-1]}
    key = (broker.folder / "client.key").read_text().splitlines()[1]
    assert [(secret, text) for secret in {*spellings, key} for text in texts if secret in text] == []


class SparkLog:
    """Writes all that the JVM logs, down to the level DEBUG, to a file, in place of the terminal."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        jvm: Any = spark._jvm
        log4j = jvm.org.apache.logging.log4j
        self.context = log4j.LogManager.getContext(False)
        self.root = self.context.getConfiguration().getRootLogger()
        self.level, self.debug = self.root.getLevel(), log4j.Level.DEBUG
        self.others = list(self.root.getAppenders().values())
        builder = log4j.core.appender.FileAppender.newBuilder()
        builder.setName("everything")
        builder.setLayout(log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%ex%n").build())
        self.appender = builder.withFileName(str(path)).build()

    def __enter__(self) -> None:
        self.appender.start()
        for each in self.others:
            self.root.removeAppender(each.getName())
        self._set([self.appender], self.debug)

    def __exit__(self, *error: object) -> None:
        self.root.removeAppender("everything")
        self._set(self.others, self.level)
        self.appender.stop()

    def _set(self, appenders: list[Any], level: Any) -> None:
        for each in appenders:
            self.root.addAppender(each, None, None)
        self.root.setLevel(level)
        self.context.updateLoggers()


def test_what_brokers_refuse_is_said_at_once_without_secrets(broker: Broker) -> None:
    broker.create("refused")
    broker.add_user("bob", SECRET)
    ways = securities(broker)
    wrong = {
        "password": replace(ways["scram 512"], password="wrong-secret"),
        "authority": replace(ways["plain"], ca=str(broker.folder / "client.pem")),
    }
    for security in wrong.values():
        with pytest.raises(hr.PipelineError, match=r"refuses the connection: .*; check user, password") as refused:
            kafkaclient.partitions("visits", address(uri(broker, security, "refused"), security=security))
        assert "secret" not in str(refused.value)
    stranger = replace(ways["certificate"], certificate=None, key=None)  # whom the broker answers nothing
    with pytest.raises(hr.PipelineError, match=r"no Kafka broker answers.* whether it asks for .* a certificate"):
        where = address(uri(broker, stranger, "refused"), security=stranger)
        kafkaclient.partitions("visits", where, patience=1)
    right = ways["scram 512"]  # a client that was refused does not spoil those that are not
    assert kafkaclient.partitions("visits", address(uri(broker, right, "refused"), security=right)) == [0]


def test_views_reach_brokers_as_the_environment_says(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kafka.toml"
    ca = os.path.relpath(broker.folder / "ca.pem", tmp_path)
    file.write_text(f'username = "{USER}"\npassword = "{PASSWORD}"\nmechanism = "PLAIN"\nca = "{ca}"\n')
    monkeypatch.setenv("HEADRACE_KAFKA_SECURITY", str(file))
    feed = feed_of(f"kafka://{broker.addresses['SASL_SSL']}", hr.Topic("safe_view", schema="user string"))
    feed.create()
    assert feed.append([{"user": "ann"}], None, None).records == 1
    assert feed.ends() == {0: 1}
    assert PASSWORD not in str(feed)
