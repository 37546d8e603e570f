"""A server behind a proxy: whom it believes that a request came by https, and what then follows."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from headrace.server import Proxies, Server, Service, Tokens
from headrace.server.security.cookies import SECURE_SESSION, SESSION

ADMIN = "a" * 20
TOKENS = Tokens.parse(f"admin:{ADMIN}")
FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


def sign_in(client: httpx.Client, **headers: str) -> str:
    answer = client.post("/login", data={"token": ADMIN}, headers=headers)
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"]


def origin(client: httpx.Client, scheme: str) -> dict[str, str]:
    return {"Origin": f"{scheme}://{client.base_url.netloc.decode()}"}


@pytest.mark.parametrize("proxies", [Proxies(("127.0.0.1",)), Proxies(["10.0.0.0/8", "127.0.0.0/8"])])
def test_a_proxy_that_is_named_is_believed(started: Callable[..., httpx.Client], proxies: Proxies) -> None:
    client = started(tokens=TOKENS, page=True, proxies=proxies)
    cookie = sign_in(client, **FORWARDED)
    assert cookie.startswith(f"{SECURE_SESSION}=")
    assert {"secure", "httponly", "path=/", "samesite=strict"} <= set(cookie.lower().split("; "))
    own = {"Cookie": cookie.partition(";")[0]}
    client.cookies.clear()
    assert client.get("/views", headers=own | FORWARDED).status_code == 200
    assert client.get("/views", headers=own).status_code == 401  # without TLS it does not count
    for scheme, status in (("https", 200), ("http", 403)):
        posted = client.post("/sql", json={"sql": "SELECT 1"}, headers=own | FORWARDED | origin(client, scheme))
        assert posted.status_code == status
    left = client.post("/logout", headers=own | FORWARDED)
    assert f'{SECURE_SESSION}=""' in left.headers["set-cookie"] and "Secure" in left.headers["set-cookie"]
    assert client.get("/views", headers=own | FORWARDED).status_code == 401


@pytest.mark.parametrize("proxies", [Proxies(), Proxies(("127.0.0.9",)), Proxies(("10.0.0.0/8", "::1"))])
def test_others_are_not(
    started: Callable[..., httpx.Client], proxies: Proxies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn would believe whom this names
    client = started(tokens=TOKENS, page=True, proxies=proxies)
    cookie = sign_in(client, **FORWARDED)
    assert cookie.startswith(f"{SESSION}=") and "secure" not in cookie.lower()
    assert client.post("/logout", headers=FORWARDED | origin(client, "https")).status_code == 403


def test_a_proxy_that_says_nothing(started: Callable[..., httpx.Client]) -> None:
    client = started(tokens=TOKENS, page=True, proxies=Proxies(https=True))
    assert sign_in(client, **origin(client, "https")).startswith(f"{SECURE_SESSION}=")
    assert client.post("/logout", headers=origin(client, "http")).status_code == 403


@pytest.mark.parametrize("address", ["*", "", "proxy.example", "10.0.0.1/8", "unix:", "10.0.0.1,10.0.0.2"])
def test_proxies_that_are_no_addresses(service: Service, address: str) -> None:
    with pytest.raises(ValueError, match="a proxy is an address or a network, such as"):
        Server(service, port=0, proxies=Proxies((address,)))
