"""Opens the socket of a server, and refuses to listen where everybody could reach a server without tokens."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final

PORT: Final = 8787
"""The default port of a server."""


def listen(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """Opens a socket that listens. Without tokens, only an address of this machine will do.

    >>> listen("127.0.0.1", 0, has_tokens=False).getsockname()[0]
    '127.0.0.1'
    """
    family, address = _resolve(host, port)
    require_tokens_off_loopback(host, address[0], has_tokens=has_tokens)
    listening = socket.create_server(address, family=family)
    # Connections inherit it. asyncio would set it, were the socket's protocol named; without, answers wait 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Returns the URL of a server that listens there.

    >>> url_of("::1", listen("127.0.0.1", 0, has_tokens=False)).rpartition(":")[0]
    'http://[::1]'
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def require_tokens_off_loopback(host: str, address: str, *, has_tokens: bool) -> None:
    """Raises a ValueError if other machines can reach an address and no tokens are set.

    >>> require_tokens_off_loopback("localhost", "127.0.0.1", has_tokens=False)
    """
    if not has_tokens and not ipaddress.ip_address(address).is_loopback:
        raise ValueError(
            f"{host} can be reached from other machines, and everybody there could read and write all; give "
            "tokens, or listen on 127.0.0.1"
        )


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Resolves a host name; the address is what is checked and listened on, not the name."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )[0]
    except OSError as error:
        raise ValueError(f"cannot listen on {host!r}: {error.strerror}; give an address of this machine") from None
    return family, address[:2]
