"""Translates the security of Kafka's brokers to the settings of its two clients: librdkafka, and Java's in Spark.

Certificates are passed as text, so that their files need to be on the driver's machine only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from headrace.model.errors import PipelineError
from headrace.model.kafkasecurity import KafkaSecurity

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def librdkafka_settings(who: object, security: KafkaSecurity | None) -> dict[str, str]:
    """Returns the settings of librdkafka, the client of Python."""
    if security is None:
        return {}
    settings: dict[str, str | None] = {
        "security.protocol": security.protocol,
        "ssl.ca.pem": _text(who, "ca", security.ca),
        "ssl.certificate.pem": _text(who, "certificate", security.certificate),
        "ssl.key.pem": _text(who, "key", security.key),
        "ssl.key.password": security.key_password,
    }
    if security.username is not None:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    return {name: value for name, value in settings.items() if value is not None}


def java_settings(who: object, security: KafkaSecurity | None) -> dict[str, str]:
    """Returns the settings of Java's client.

    >>> settings = java_settings("visits", KafkaSecurity(username="ann", password='say "hi"', tls=False))
    >>> settings["security.protocol"], settings["sasl.jaas.config"].partition(" ")[2]
    ('SASL_PLAINTEXT', 'required username="ann" password="say \\\\"hi\\\\"";')
    """
    if security is None:
        return {}
    settings: dict[str, str | None] = {"security.protocol": security.protocol}
    if security.ca is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(who, "ca", security.ca)}
    if security.certificate is not None:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text(who, "certificate", security.certificate),
            "ssl.keystore.key": _text(who, "key", security.key),
            "ssl.key.password": security.key_password,
        }
    if security.username is not None:
        settings |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": _login(security)}
    return {name: value for name, value in settings.items() if value is not None}


def _login(security: KafkaSecurity) -> str:
    assert security.username is not None and security.password is not None
    user, password = (text.translate(_ESCAPES) for text in (security.username, security.password))
    return f'{_LOGIN_MODULES[security.mechanism]} required username="{user}" password="{password}";'


def _text(who: object, name: str, path: str | None) -> str | None:
    """Returns the text of a PEM file. Refuses a private key that Java's client could not read."""
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise PipelineError(f"{who}: {name}={path!r} of security cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if "-----BEGIN " not in text:
        raise PipelineError(f"{who}: {name}={path!r} of security must be a PEM file, with a line -----BEGIN ...")
    if name == "key" and not re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", text):
        raise PipelineError(
            f"{who}: key={path!r} of security must be in PKCS #8; convert it with openssl pkcs8 -topk8 -in {path}"
        )
    return text
