"""Tests the declaration of how Kafka's brokers are reached, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.edges.kafkasettings import java_settings, librdkafka_settings
from headrace.model.topics import address


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"username": "ann"}, "username and password belong together; got only the username"),
        ({"key": "k.pem"}, "certificate and key belong together; got only the key"),
        ({"tls": False}, "without TLS and without a user there is no security"),
        ({"tls": False, "username": "a", "password": "b", "ca": "ca.pem"}, "ca is for TLS; leave out tls=False"),
        ({"username": "a", "password": "b", "mechanism": "GSSAPI"}, "mechanism must be one of 'PLAIN'.*got 'GSSAPI'"),
        ({"key_password": "b"}, "key_password is that of the key, which is missing"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match):
        hr.KafkaSecurity(**settings)


def test_protocols() -> None:
    user = {"username": "ann", "password": "hunter2"}
    ways = [hr.KafkaSecurity(), hr.KafkaSecurity(**user), hr.KafkaSecurity(**user, tls=False)]
    assert [way.protocol for way in ways] == ["SSL", "SASL_SSL", "SASL_PLAINTEXT"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("password = hunter2", "is not TOML"),
        ('pasword = "hunter2"', "has the name 'pasword'; there are username, password"),
        ("password = 2", "password in .* must be text in quotes"),
        ('tls = "no"', "tls in .* must be true or false"),
    ],
)
def test_a_file_with_mistakes_is_refused_without_its_secrets(text: str, match: str, tmp_path: Path) -> None:
    file = tmp_path / "kafka.toml"
    file.write_text(text)
    with pytest.raises(hr.PipelineError, match=match) as refused:
        hr.KafkaSecurity.from_file(file)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(hr.PipelineError, match="cannot be read: No such file"):
        hr.KafkaSecurity.from_file(tmp_path / "none.toml")


def test_topics_have_security_only_with_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    security = hr.KafkaSecurity(username="ann", password="hunter2")
    with pytest.raises(hr.PipelineError, match="security is for brokers of Kafka, but the topic is 'visits'"):
        hr.ReadTopic("visits", security=security)
    with pytest.raises(hr.PipelineError, match=r"must be an hr\.KafkaSecurity, got a str$"):
        hr.WriteTopic("kafka://h:1/visits", security="hunter2")  # type: ignore[arg-type]
    with pytest.raises(hr.PipelineError, match=r"has no user or password, got one for 'h'; give security=") as refused:
        hr.ReadTopic("kafka://ann:hunter2@h:1/visits")
    assert "hunter2" not in str(refused.value)
    (tmp_path / "kafka.toml").write_text('username = "bob"\npassword = "x"\nca = "ca.pem"')
    monkeypatch.setenv("HEADRACE_KAFKA_SECURITY", str(tmp_path / "kafka.toml"))
    by_environment = address("kafka://h:1/visits").security
    assert by_environment == hr.KafkaSecurity(username="bob", password="x", ca=str(tmp_path / "ca.pem"))
    assert address("kafka://h:1/visits", security=security).security == security
    assert address("visits").security is None


def test_no_text_of_a_transform_has_a_password() -> None:
    security = hr.KafkaSecurity(username="ann", password="hunter2", key="k", certificate="c", key_password="hunter3")
    read = hr.Read("kafka://h:1/visits", security=security)
    texts = [repr(security), str(security), repr(read), str(read), repr(vars(read)), repr(read.address)]  # type: ignore[attr-defined]
    assert [text for text in texts if "hunter" in text] == []
    assert pickle.loads(pickle.dumps(security)) == security


def test_certificates_are_files_in_pem(tmp_path: Path) -> None:
    for name, text in {
        "ca": "x",
        "old": "-----BEGIN EC PRIVATE KEY-----\n",
        "ok": "-----BEGIN PRIVATE KEY-----",
    }.items():
        (tmp_path / name).write_text(text)
    ca, old, good = (str(tmp_path / name) for name in ("ca", "old", "ok"))
    for settings in (java_settings, librdkafka_settings):
        for security, match in (
            (hr.KafkaSecurity(ca=str(tmp_path / "none")), "visits: ca=.* cannot be read: No such file"),
            (hr.KafkaSecurity(ca=ca), "ca=.* must be a PEM file"),
            (hr.KafkaSecurity(certificate=good, key=old), "key=.* must be in PKCS #8; convert it with openssl pkcs8"),
        ):
            with pytest.raises(hr.PipelineError, match=match):
                settings("visits", security)
        assert settings("visits", None) == {}
