"""Declares how Kafka's brokers are reached: by TLS, and with a user and a password or a certificate."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, get_args

from headrace.model.errors import PipelineError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
"""How a user proves the password: it is sent (PLAIN), or both sides prove that they know it (SCRAM)."""

VARIABLE: Final = "HEADRACE_KAFKA_SECURITY"
"""The environment variable that names a file of these settings, for topics whose `security` is not given."""


@dataclass(frozen=True)
class KafkaSecurity:
    """TLS, and a user and password or a certificate, for Kafka's brokers. Nothing prints the passwords.

    - username, password, mechanism: for SASL; the mechanism is "SCRAM-SHA-512", "SCRAM-SHA-256" or "PLAIN"
    - tls: whether the connection is encrypted; without it, the mechanism PLAIN sends the password as it is
    - ca: a PEM file of the authorities that sign the brokers' certificates; without it, those that the machine trusts
    - certificate, key, key_password: PEM files of the client's own certificate and private key, if brokers ask for them

    >>> import headrace as hr
    >>> hr.KafkaSecurity(username="ann", password="hunter2", ca="ca.pem")
    KafkaSecurity(username='ann', mechanism='SCRAM-SHA-512', tls=True, ca='ca.pem', certificate=None, key=None)
    >>> hr.KafkaSecurity(username="ann")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: KafkaSecurity: username and password belong together; got only the username
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: Mechanism = "SCRAM-SHA-512"
    tls: bool = True
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            known = ", ".join(map(repr, get_args(Mechanism)))
            raise PipelineError(f"KafkaSecurity: mechanism must be one of {known}; got {self.mechanism!r}")
        self._check_pair("username", "password")
        self._check_pair("certificate", "key")
        for name in ("ca", "certificate", "key_password"):
            if getattr(self, name) is not None and not self.tls:
                raise PipelineError(f"KafkaSecurity: {name} is for TLS; leave out tls=False, or the {name}")
        if self.key_password is not None and self.key is None:
            raise PipelineError(
                "KafkaSecurity: key_password is that of the key, which is missing; give key=, a PEM file"
            )
        if not self.tls and self.username is None:
            raise PipelineError("KafkaSecurity: without TLS and without a user there is no security; leave it out")

    def _check_pair(self, first: str, second: str) -> None:
        present = [name for name in (first, second) if getattr(self, name) is not None]
        if len(present) == 1:
            raise PipelineError(f"KafkaSecurity: {first} and {second} belong together; got only the {present[0]}")

    @property
    def protocol(self) -> str:
        """Kafka's name for the protocol."""
        if self.username is None:
            return "SSL"
        return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"

    @classmethod
    def from_file(cls, path: str | Path) -> KafkaSecurity:
        """Reads the settings from a TOML file, under the names of the arguments; relative paths are beside that file.

        >>> import headrace as hr, pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "kafka.toml")
        >>> _ = file.write_text('username = "ann"\\npassword = "hunter2"\\nca = "/etc/kafka/ca.pem"')
        >>> hr.KafkaSecurity.from_file(file).username
        'ann'
        """
        file = Path(path)
        try:
            settings = tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            raise PipelineError(f"KafkaSecurity: {file} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):  # whose messages may quote a password
            raise PipelineError(f'KafkaSecurity: {file} is not TOML; write lines such as username = "ann"') from None
        kinds = {each.name: bool if each.name == "tls" else str for each in fields(cls)}
        for name, value in settings.items():
            if name not in kinds:
                raise PipelineError(f"KafkaSecurity: {file} has the name {name!r}; there are {', '.join(kinds)}")
            if not isinstance(value, kinds[name]):
                kind = "true or false" if kinds[name] is bool else "text in quotes"
                raise PipelineError(f"KafkaSecurity: {name} in {file} must be {kind}")
        for name in {"ca", "certificate", "key"} & settings.keys():
            settings[name] = str(file.parent / settings[name])
        return cls(**settings)

    @classmethod
    def from_environment(cls) -> KafkaSecurity | None:
        """Reads the file that the environment variable HEADRACE_KAFKA_SECURITY names; None if it is not set."""
        path = os.environ.get(VARIABLE)
        return cls.from_file(path) if path else None
