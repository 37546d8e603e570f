"""Plots, compared with the rows that they show."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.page.plot import MAX_BARS, LayerRows, plot
from headrace.views.query.queries import Row


def row(hour: int, n: Any) -> Row:
    return Row({}, (hour * 3_600_000_000, (hour + 1) * 3_600_000_000), {"n": n})


LAYER = st.dictionaries(st.integers(0, 30), st.integers(-5, 50), max_size=20)


@given(LAYER, LAYER)
def test_the_parts_of_a_stack_add_up_to_the_answer(batch: dict[int, int], speed: dict[int, int]) -> None:
    total = {hour: batch.get(hour, 0) + speed.get(hour, 0) for hour in sorted(batch.keys() | speed.keys())}
    layer_rows = LayerRows(*([row(hour, n) for hour, n in layer.items()] for layer in (total, batch, speed)))
    options = plot(layer_rows, "n", stacked=True)
    if not total:
        assert options is None
        return
    assert options is not None
    below, above = (series["data"] for series in options["series"])
    assert [(at, n + m) for (at, n), (_, m) in zip(below, above, strict=True)] == [
        (hour * 3_600_000, n) for hour, n in total.items()
    ]
    together = plot(layer_rows, "n", stacked=False)
    assert together is not None
    assert [n for _, n in together["series"][1]["data"]] == list(total.values())


def test_a_plot_has_the_newest_windows_and_numbers_only() -> None:
    rows = [row(hour, hour) for hour in range(MAX_BARS + 10)]
    options = plot(LayerRows(rows, rows, []), "n", stacked=True)
    assert options is not None and options["series"][0]["data"][0] == [10 * 3_600_000, 10]
    assert plot(LayerRows([row(0, ["a", 3])], [], []), "n", stacked=False) is None
    assert plot(LayerRows([row(0, True)], [], []), "n", stacked=False) is None
