"""Programs over collections that change, against computation from scratch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.incremental.changeprogram import Program
from headrace.engine.incremental.fromscratch import FromScratch
from headrace.engine.incremental.scratcharrays import ScratchArrays
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import Collection, iterate
from tests.reference_incremental import compute, nonzero
from tests.scale import examples

SIZE = 4  # elements are pairs of numbers below this


FUNCTIONS: list[Callable[[Sequence[Any]], Any]] = [
    min,
    max,
    lambda values: sum(values) % SIZE,
    lambda values: values[0],
]


def turned(turn: int, pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], (pair[0] + turn) % SIZE


def divides(modulus: int, pair: tuple[int, int]) -> bool:
    return sum(pair) % modulus == 0


def random_program(rng: random.Random) -> Collection:
    """A program over pairs: operators in any order, with loops within each other.

    Numbers do not grow, and loops end: in a distinct, or after a few times.
    """
    edges, others = Collection.input("edges"), Collection.input("others")

    def operators(available: list[Collection], level: int, length: int) -> Collection:
        made = list(available)
        for _ in range(length):
            one, other = rng.choice(made), rng.choice(made)
            turn, modulus = rng.randrange(SIZE), rng.randint(1, SIZE)
            choice = rng.randrange(10 if level < 2 else 9)
            if choice == 0:
                new = one.map(partial(turned, turn))
            elif choice == 1:
                new = one.filter(partial(divides, modulus))
            elif choice == 2:
                new = one.flat_map(lambda pair: [pair, (pair[1], pair[1])])
            elif choice == 3:
                new = one.distinct().join(other.distinct(), lambda key, left, right: (left, right))
            elif choice == 4:
                new = one.reduce(rng.choice(FUNCTIONS))
            elif choice == 5:
                new = one.count().map(lambda pair: (pair[0], pair[1] % SIZE))
            elif choice == 6:
                new = one.distinct()
            elif choice == 7:
                new = one.concat(other)
            elif choice == 8:
                new = one.distinct().concat(other.distinct().negate())
            else:
                new = loop(one, made, level)
            made.append(new)
        return made[-1]

    def loop(start: Collection, outside: list[Collection], level: int) -> Collection:
        if rng.random() < 0.5:  # what was reached stays, so it ends

            def body(variable: Collection) -> Collection:
                step = operators([variable, *outside[-2:]], level + 1, rng.randint(1, 3)).distinct()
                return variable.distinct().concat(step).distinct()

            return iterate(start.distinct(), body)
        return iterate(
            start,
            lambda variable: operators([variable, *outside[-2:]], level + 1, rng.randint(1, 3)).distinct(),
            iterations=rng.randint(1, 4),
        )

    return operators([edges, others], 0, rng.randint(2, 5))


def random_changes(rng: random.Random, inputs: dict[str, Counter[Any]], size: int) -> dict[str, list[tuple[Any, int]]]:
    """Changes that leave no count of an input below zero; they are added to the inputs."""
    changes: dict[str, list[tuple[Any, int]]] = {name: [] for name in inputs}
    for _ in range(size):
        name = rng.choice(list(inputs))
        present = [pair for pair, count in inputs[name].items() if count > 0]
        if present and rng.random() < 0.45:
            change = (rng.choice(present), -1)
        else:
            change = ((rng.randrange(SIZE), rng.randrange(SIZE)), rng.choice([1, 1, 2]))
        inputs[name][change[0]] += change[1]
        changes[name].append(change)
    return changes


@given(st.integers(0, 10**9))
@examples(500)
def test_every_epoch_is_as_computed_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    result = random_program(rng)
    program = Program(result, stored=True)
    inputs: dict[str, Counter[Any]] = {name: Counter() for name in program.inputs}
    answer: Counter[Any] = Counter()
    blocks: list[bytes] = []
    for _ in range(rng.randint(1, 6)):
        answer.update(program.step(random_changes(rng, inputs, rng.randint(0, 6)) if inputs else {}))
        expected = compute(result, inputs)
        assert nonzero(answer) == expected
        changes = {name: list(counts.items()) for name, counts in inputs.items()}
        assert FromScratch(changes).compute(result) == expected == ScratchArrays(changes).compute(result)
        blocks += program.changes()
        if rng.random() < 0.3:  # a part replaces nothing: it says the same once more
            middle = rng.randrange(2**64)
            blocks += rng.choice([program.part(0, middle), program.part(middle, 2**64), program.part(0, 2**64)])
        if rng.random() < 0.4:  # another process goes on
            program = Program(result, stored=True)
            if rng.random() < 0.3 and blocks:
                program.load(blocks)
                blocks = program.part(0, 2**64)
                program = Program(result, stored=True)
            program.load(blocks)


def growing(edges: Collection) -> Collection:
    return iterate(edges, lambda pairs: pairs.map(lambda pair: (pair[0], pair[1] + 1)), limit=20)


def test_a_loop_without_end_is_stopped_with_what_still_moves() -> None:
    program = Program(growing(Collection.input("edges")))
    with pytest.raises(PipelineError, match=r"gone round 20 times, its limit, and 2 changes .*'a', 21"):
        program.step({"edges": [(("a", 0), 1)]})
    with pytest.raises(PipelineError, match="gone round 20 times, its limit, and 1 changes"):
        FromScratch({"edges": [(("a", 0), 1)]}).compute(growing(Collection.input("edges")))


def test_what_did_not_change_is_not_computed_again() -> None:
    edges, roots = Collection.input("edges"), Collection.input("roots")
    reached = iterate(roots, lambda nodes: nodes.join(edges, lambda at, _, to: (to, None)).concat(roots).distinct())
    program = Program(reached)
    chain = [((n, n + 1), 1) for n in range(300)]
    program.step({"edges": chain, "roots": [((0, None), 1)]})
    whole = program.work.changes
    assert program.step({"edges": [((299, 300), -1)]}) == {(300, None): -1}
    assert program.work.changes < 20 < 900 < whole
    assert len(program.step({"edges": [((150, 151), -1)]})) == 149


def test_deletion_may_come_before_insertion() -> None:
    program = Program(Collection.input("words").distinct())
    assert program.step({"words": [("a", -1)]}) == {}
    assert program.step({"words": [("a", 1)]}) == {}
    assert program.step({"words": [("a", 1)]}) == {"a": 1}


@pytest.mark.parametrize(
    ("build", "note"),
    [
        (lambda edges: edges.map(lambda edge: 1 // edge[1]), "(of the element ('b', 0))"),
        (lambda edges: edges.reduce(lambda values: 1 // values[0]), "(of the values of the key 'b')"),
        (lambda edges: edges.join(edges, lambda key, left, right: 1 // left), "(of the key 'b')"),
    ],
)
def test_a_function_that_fails_is_blamed_with_its_element(build: Callable[[Collection], Collection], note: str) -> None:
    program = Program(build(Collection.input("edges")))
    with pytest.raises(ZeroDivisionError) as failed:
        program.step({"edges": [(("a", 1), 1), (("b", 0), 1), (("c", 1), 1)]})
    assert failed.value.__notes__ == [note]


def test_state_of_another_program_is_refused() -> None:
    one, other = (Program(fn(Collection.input("words")), stored=True) for fn in (Collection.distinct, Collection.count))
    one.step({"words": [(("a", 1), 1)]})
    with pytest.raises(PipelineError, match="another program"):
        other.load(one.changes())


def test_state_of_a_loop_of_other_iterations_is_refused() -> None:
    def program(iterations: int) -> Program:
        return Program(iterate(Collection.input("words"), Collection.distinct, iterations=iterations), stored=True)

    one = program(2)
    one.step({"words": [("a", 1)]})
    changes = one.changes()
    program(2).load(changes)
    with pytest.raises(PipelineError, match="the iterations of its loops"):
        program(3).load(changes)


@pytest.mark.parametrize("element", [[1], (1,)])
def test_what_cannot_be_hashed_is_refused_with_a_remedy(element: Any) -> None:
    program = Program(Collection.input("lists").map(lambda each: ("a", list(each))).count())
    with pytest.raises(PipelineError, match=r"must be hashable, got .*; make tuples of lists"):
        program.step({"lists": [(element, 1)]})


def _any(value: Any) -> Any:
    return value


def _leak(edges: Collection) -> Collection:
    inside: list[Collection] = []
    iterate(edges, lambda pairs: inside.append(pairs) or pairs)  # type: ignore[func-returns-value]
    return inside[0].distinct()


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (_leak, "a loop that has ended"),
        (lambda edges: edges.join(_any("edges")), "join takes collections that change, got 'edges'"),
        (lambda edges: edges.map(_any(3)), "map takes a function, got 3"),
        (lambda edges: iterate(_any("edges"), lambda x: x), "iterate begins with a collection"),
        (lambda edges: iterate(edges, lambda x: _any(None)), "must return a collection, got None"),
        (
            lambda edges: iterate(edges, lambda x: x, iterations=0),
            "iterations must be a whole number, at least 1, got 0",
        ),
        (lambda edges: Program(edges.count()).step({"edges": [("x", 1)]}), "pairs of key and value, got 'x'"),
        (lambda edges: Program(edges).step({"nodes": []}), "no input 'nodes'; it has 'edges'"),
    ],
)
def test_what_has_no_meaning_is_refused(build: Callable[[Collection], Any], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        build(Collection.input("edges"))
