"""Shards that go on in step: each micro-batch steps all of them, and each knows what the others said after the last."""

from __future__ import annotations


def check_step(own: int, other: int, sender: int) -> None:
    """Refuses what a shard said after another micro-batch than the last.

    >>> check_step(3, 2, 1)
    Traceback (most recent call last):
    RuntimeError: shard 1 has seen 2 micro-batches and this one 3; go on from an earlier copy of the checkpoint
    """
    if own != other:
        raise RuntimeError(
            f"shard {sender} has seen {other} micro-batches and this one {own}; go on from an earlier copy of the "
            "checkpoint"
        )
