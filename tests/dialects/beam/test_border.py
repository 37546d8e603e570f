"""Windowed values that leave a stage and enter another one are the same again."""

from __future__ import annotations

from typing import Any

import pytest
from apache_beam.coders import PickleCoder, StrUtf8Coder, TupleCoder, VarIntCoder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder, IterableCoder
from apache_beam.transforms.window import BoundedWindow, GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.beam.border import DecodedValues, ElementBorder, Form, WindowBorder, WindowKind, to_times
from headrace.engine.worker.bundles import from_block, to_block
from headrace.model.times import MAX_TIME, MIN_TIME
from tests.scale import examples


class Day(BoundedWindow):  # type: ignore[misc]
    """A window that is no interval."""

    def __init__(self, number: int) -> None:
        super().__init__(Timestamp(86_400 * (number + 1)))
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Day) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"Day({self.number})"


_times = st.integers(-(10**15), 10**15) | st.sampled_from([MIN_TIMESTAMP.micros, MAX_TIMESTAMP.micros])
_panes = st.builds(PaneInfo, st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(-1, 3))
_windows: dict[WindowKind, tuple[Any, st.SearchStrategy[Any]]] = {
    WindowKind.GLOBAL: (GlobalWindowCoder(), st.just(GlobalWindow())),
    WindowKind.INTERVAL: (
        IntervalWindowCoder(),
        st.builds(lambda start, size: IntervalWindow(start, start + size), st.integers(-9, 9), st.integers(1, 9)),
    ),
    WindowKind.FOLDED: (PickleCoder(), st.builds(Day, st.integers(-3, 3))),
}


@pytest.mark.parametrize("kind", WindowKind)
@pytest.mark.parametrize("form", [Form.CODED, Form.PAIRS])
@examples(100)
@given(data=st.data())
def test_what_leaves_a_stage_enters_another(kind: WindowKind, form: Form, data: st.DataObject) -> None:
    coder, windows = _windows[kind]
    some = st.tuples(windows) if kind is WindowKind.GLOBAL else st.lists(windows, min_size=1, max_size=3).map(tuple)
    values = data.draw(
        st.lists(
            st.builds(windowed_value.create, st.tuples(st.text(max_size=3), st.integers(-9, 9)), _times, some, _panes),
            max_size=9,
        )
    )
    border = ElementBorder(form, TupleCoder((StrUtf8Coder(), VarIntCoder())), WindowBorder.of(coder))
    assert border.windows.kind is kind
    back = [value for bundle in border.to_bundles(values) for value in border.from_bundle(from_block(to_block(bundle)))]
    assert back == [_in_window(value, window) for value in values for window in value.windows]


def _in_window(value: WindowedValue, window: Any) -> WindowedValue:
    return windowed_value.create(value.value, value.timestamp_micros, (window,), value.pane_info)


def test_groups_are_decoded_and_large_ones_as_one_iterates() -> None:
    coder = TupleCoder((StrUtf8Coder(), IterableCoder(VarIntCoder())))
    border = ElementBorder(Form.GROUPS, coder, WindowBorder.of(GlobalWindowCoder()))
    encode = VarIntCoder().encode
    assert border.decoded((b"a", [encode(1), encode(2)])) == ("a", [1, 2])
    _, values = border.decoded((b"a", (encode(1), encode(2))))
    assert isinstance(values, DecodedValues)
    assert [list(values), list(values), len(values)] == [[1, 2], [1, 2], 2]


def test_the_ends_of_time_meet() -> None:
    last = GlobalWindow().max_timestamp().micros
    times = to_times([MIN_TIMESTAMP.micros, last, last + 1, MAX_TIMESTAMP.micros])
    assert times.tolist() == [MIN_TIME, MAX_TIME - 1, MAX_TIME, MAX_TIME]
