"""Declares a schema registry, from which topics of Kafka have the schemas of their records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from headrace.model.errors import PipelineError

Format = Literal["avro", "protobuf"]
"""A format whose schemas are in a registry."""


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry that speaks the protocol of Confluent's. Nothing prints the password.

    - url: its address; several, separated by commas, are asked in turn
    - username, password: of HTTP's basic authentication
    - ca: a PEM file of the authorities that sign its certificate; without it, those that the machine trusts

    >>> import headrace as hr
    >>> hr.SchemaRegistry("https://registry:8081", username="ann", password="hunter2")
    SchemaRegistry(url='https://registry:8081', username='ann', ca=None)
    >>> hr.SchemaRegistry("registry:8081")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: SchemaRegistry: url must be http://HOST:PORT or https://HOST:PORT, got \
'registry:8081'
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        for url in self.url.split(","):
            parts = urlsplit(url.strip())
            if "@" in parts.netloc:
                raise PipelineError(
                    f"SchemaRegistry: a url has no user or password, got one for {parts.hostname!r}; give username= "
                    "and password="
                )
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise PipelineError(
                    f"SchemaRegistry: url must be http://HOST:PORT or https://HOST:PORT, got {self.url!r}"
                )
        if (self.username is None) != (self.password is None):
            raise PipelineError("SchemaRegistry: username and password belong together; give both, or none")

    def __str__(self) -> str:
        return self.url
