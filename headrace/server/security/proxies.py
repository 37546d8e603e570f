"""Proxies in front of a server: which are believed, and whether browsers reach it by https alone."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Proxies:
    """The addresses or networks of proxies whose X-Forwarded-Proto and X-Forwarded-For are believed; by default none.

    With `https` every request counts as one over https: for a proxy with TLS that sends no such headers. Over https
    the cookies of sessions are for https alone, and pages without TLS are other sites.

    >>> Proxies(("10.0.0.5", "fd00::/8")).addresses
    ('10.0.0.5', 'fd00::/8')
    >>> Proxies(("*",))
    Traceback (most recent call last):
        ...
    ValueError: a proxy is an address or a network, such as 10.0.0.5 or 10.0.0.0/8; got '*'
    """

    addresses: Sequence[str] = ()
    https: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", tuple(self.addresses))
        for address in self.addresses:
            try:
                ipaddress.ip_network(address)
            except ValueError:
                raise ValueError(
                    f"a proxy is an address or a network, such as 10.0.0.5 or 10.0.0.0/8; got {address!r}"
                ) from None
