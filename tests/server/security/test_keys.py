"""Keys of requests are those of a token: no other token sees, takes or blocks them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.log import Log
from headrace.server import Service, Tokens
from headrace.server.ingestion import Ingestion
from headrace.views.feeds import Receipt, RequestConflict, RequestKey, feed_of
from tests.scale import examples
from tests.server.conftest import LINES, visits

ANN, BOB = "ann-" * 5, "bob-" * 5
TOKENS = Tokens.parse(f"write:{ANN} write:{BOB}")


def event(user: str) -> str:
    return json.dumps({"user": user, "url": "a", "ts": "2026-01-31"})


def post(client: httpx.Client, token: str, body: str, key: str = "k", sequence: int = 0) -> tuple[int, Any]:
    names = {"Authorization": f"Bearer {token}", "Idempotency-Key": key, "Idempotency-Sequence": str(sequence)}
    answer = client.post("/topics/visits", content=body, headers=LINES | names)
    return answer.status_code, answer.json().get("repeated")


def test_two_tokens_use_the_same_key(started: Callable[..., httpx.Client], service: Service) -> None:
    client = started(tokens=TOKENS)
    assert post(client, ANN, event("ann")) == (200, False)
    assert post(client, BOB, event("bob")) == (200, False)  # it was refused: ann had taken the key
    assert post(client, BOB, event("ann"), "l") == post(client, ANN, event("ann"), "l") == (200, False)
    assert post(client, ANN, event("ann"), sequence=7) == post(client, BOB, event("bob"), sequence=3) == (200, False)
    assert post(client, ANN, event("ann")) == post(client, BOB, event("bob")) == (200, True)
    assert post(client, ANN, event("bob")) == post(client, BOB, event("ann")) == (422, None)
    assert sum(service.topics["visits"].offsets().values()) == 6


def test_requests_from_before_there_were_tokens(started: Callable[..., httpx.Client], service: Service) -> None:
    before = service.topics["visits"].append(event("ann").encode(), RequestKey("k", 5))
    client = started(tokens=TOKENS)
    assert post(client, ANN, event("ann"), sequence=5) == (200, True)
    assert post(client, BOB, event("bob"), sequence=5) == (200, False)  # another request is not blocked by it
    assert post(client, BOB, event("bob"), sequence=5) == (200, True)
    assert post(client, ANN, event("ann"), sequence=4) == (200, False)  # nothing is known of that number
    assert service.topics["visits"].append(event("ann").encode(), RequestKey("k", 5)) == Receipt(
        1, before.offsets, repeated=True
    )
    assert sum(service.topics["visits"].offsets().values()) == 3


def test_keys_outlive_the_server_but_not_the_token(tmp_path: Any) -> None:
    owner = TOKENS.grant(ANN).owner
    assert owner == Tokens.load(TOKENS.dump()).grant(ANN).owner != TOKENS.grant(BOB).owner  # type: ignore[arg-type]
    assert TOKENS.grant("guess" * 4).owner == ""
    assert not any(part in owner for part in (ANN, TOKENS.granted[0][0].hex()[:8]))  # nothing of the digest is stored
    feed_of(tmp_path, visits).create()
    first = Ingestion(feed_of(tmp_path, visits)).append(event("ann").encode(), RequestKey("k", owner=owner))
    again = Ingestion(feed_of(tmp_path, visits)).append(event("ann").encode(), RequestKey("k", owner=owner))
    assert (first.repeated, again.repeated) == (False, True)


REQUESTS = st.lists(
    st.tuples(st.sampled_from(["x", "y"]), st.sampled_from("kl"), st.integers(0, 2), st.sampled_from("abc")),
    max_size=12,
)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS)
def test_any_requests_of_two_owners_are_as_those_of_each_alone(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[str, str, int, str]]
) -> None:
    def outcomes(chosen: set[str]) -> list[Any]:
        log = Log(tmp_path_factory.mktemp("log"))
        log.create("visits", partitions=3, values=visits.schema)
        ingestion, results = Ingestion(feed_of(log, visits)), []
        for owner, key, sequence, user in requests:
            if owner in chosen:
                try:
                    receipt = ingestion.append(event(user).encode(), RequestKey(key, sequence, owner))
                    results.append((owner, receipt.repeated))
                except (RequestConflict, ValueError) as error:
                    results.append((owner, str(error).partition(" a producer sent ")[2] or str(error)))
        return results

    together = outcomes({"x", "y"})
    for owner in ("x", "y"):
        assert [each for each in together if each[0] == owner] == outcomes({owner})
