"""Open connections by address, and which of them makes room when there are too many.

Nobody is refused as long as a connection waits for its client. So idle connections keep nobody out, wherever they come
from: those of the address with the most go first, and of these the one that has waited longest. A client that sends its
request right after it has connected is among the last. Which it is takes no longer to find with many addresses, and an
attacker has as many of them as he likes.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Generic, TypeVar

C = TypeVar("C")


class Connections(Generic[C]):
    """The open connections of a server. One that waits for its client may have to make room, one that works may not.

    >>> connections = Connections()
    >>> for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.2"), ("d", "10.0.0.2")):
    ...     connections.add(name, address)
    >>> connections.set_waiting("b", False)
    >>> connections.next_to_close()
    'c'
    >>> connections.remove("c"), connections.remove("d"), connections.next_to_close()
    (None, None, 'a')
    """

    def __init__(self) -> None:
        self._addresses: dict[C, str] = {}
        self._open: Counter[str] = Counter()
        self._waiting: dict[str, dict[C, None]] = {}  # by address, in the order in which they began to wait
        # Addresses of which some wait, by how many are open, in the order in which that came to be. There are few such
        # numbers: they add up to no more than the connections.
        self._by_count: dict[int, dict[str, None]] = {}
        self._counted: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: C, address: str) -> None:
        """Adds a connection, which waits for its first request."""
        self._addresses[connection] = address
        self._open[address] += 1
        self._waiting.setdefault(address, {})[connection] = None
        self._count(address)

    def set_waiting(self, connection: C, waiting: bool) -> None:
        """Notes that a connection waits for its client, from now on if it did not before, or does not wait any more."""
        if (address := self._addresses.get(connection)) is None:
            return
        if waiting:
            self._waiting.setdefault(address, {}).setdefault(connection)
        else:
            self._discard(connection, address)
        self._count(address)

    def remove(self, connection: C) -> None:
        """Removes a connection, if it is still there."""
        if (address := self._addresses.pop(connection, None)) is None:
            return
        self._discard(connection, address)
        self._open[address] -= 1
        self._count(address)
        if not self._open[address]:
            del self._open[address]

    def next_to_close(self) -> C | None:
        """Returns the connection that makes room: of the address with the most, the one that has waited longest."""
        if not self._by_count:
            return None
        address = next(iter(self._by_count[max(self._by_count)]))
        return next(iter(self._waiting[address]))

    def _discard(self, connection: C, address: str) -> None:
        waiting = self._waiting.get(address, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(address, None)

    def _count(self, address: str) -> None:
        """Puts an address where it belongs by now."""
        before = self._counted.get(address, 0)
        now = self._open[address] if address in self._waiting else 0
        if now == before:
            return
        if before:
            del self._counted[address], self._by_count[before][address]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._counted[address] = now
            self._by_count.setdefault(now, {})[address] = None


def network_of(host: str) -> str:
    """Returns the address that a client is counted by: of IPv6 the network, since a client has all addresses of one.

    >>> network_of("10.0.0.1"), network_of("2001:db8::7"), network_of("")
    ('10.0.0.1', '2001:db8::/64', '')
    """
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
