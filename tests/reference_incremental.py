"""What a program over collections means: computed from scratch, with counters, one operator after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.model.incremental import changingcollections as declared
from headrace.model.incremental.changingcollections import Collection


def compute(result: Collection, inputs: Mapping[str, Mapping[Any, int]]) -> dict[Any, int]:
    """How often each element is in a collection, when the inputs have these."""
    return nonzero(_compute(result, inputs, {}))


def nonzero(counts: Mapping[Any, int]) -> dict[Any, int]:
    return {element: count for element, count in counts.items() if count}


def _compute(
    collection: Collection, inputs: Mapping[str, Mapping[Any, int]], variables: dict[Collection, Counter[Any]]
) -> Counter[Any]:
    if collection in variables:
        return variables[collection]
    out: Counter[Any] = Counter()
    if collection.kind == declared.INPUT:
        out.update(inputs.get(collection.name, {}))
        return out
    if collection.kind == declared.LEAVE:
        loop: Any = collection.loop
        now = _compute(loop.variable.inputs[0], inputs, variables)
        for _ in range(loop.iterations or loop.limit):
            before, now = now, _compute(loop.result, inputs, {**variables, loop.variable: now})
            if loop.iterations is None and nonzero(before) == nonzero(now):
                break
        return now
    given = [_compute(each, inputs, variables) for each in collection.inputs]
    fn: Any = collection.fn
    match collection.kind:
        case declared.MAP:
            for element, count in given[0].items():
                out[fn(element)] += count
        case declared.FILTER:
            out.update({element: count for element, count in given[0].items() if fn(element)})
        case declared.FLAT_MAP:
            for element, count in given[0].items():
                for made in fn(element):
                    out[made] += count
        case declared.CONCAT:
            for each in given:
                out.update(each)
        case declared.NEGATE:
            out.subtract(given[0])
        case declared.DISTINCT:
            out.update({element: 1 for element, count in given[0].items() if count > 0})
        case declared.JOIN:
            for (key, left), m in given[0].items():
                for (other, right), n in given[1].items():
                    if key == other:
                        out[fn(key, left, right) if fn else (key, (left, right))] += m * n
        case declared.REDUCE:
            for key in {key for key, _ in given[0]}:
                values = sorted(Counter({value: n for (k, value), n in given[0].items() if k == key}).elements())
                if values:
                    out[key, fn(values)] += 1
        case kind:
            raise AssertionError(kind)
    return out
