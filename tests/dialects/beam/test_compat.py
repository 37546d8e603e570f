"""Every name of Beam's insides that this dialect touches is still there, and means what it did."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from apache_beam.coders import BytesCoder
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.worker import bundle_processor, operations, sdk_worker, statesampler
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils import windowed_value

from headrace.dialects.beam import compat
from headrace.dialects.beam.phases import PHASES


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (bundle_processor.BundleProcessor, "__init__", ["runner_capabilities", "process_bundle_descriptor"]),
        (bundle_processor.BundleProcessor, "monitoring_infos", ["self"]),
        (bundle_processor.BundleProcessor, "delayed_bundle_application", ["op", "deferred_remainder"]),
        (bundle_processor.BundleProcessor, "requires_finalization", ["self"]),
        (bundle_processor.BundleProcessor, "finalize_bundle", ["self"]),
        (bundle_processor.BundleProcessor, "reset", ["self"]),
        (bundle_processor.BundleProcessor, "shutdown", ["self"]),
        (bundle_processor.ExecutionContext, "__init__", ["delayed_applications", "instruction_id"]),
        (sdk_worker.CachingStateHandler, "blocking_get", ["state_key", "coder"]),
        (statesampler, "set_current_tracker", ["tracker"]),
        (fn_runner.FnApiMetrics, "__init__", ["step_monitoring_infos", "user_metrics_only"]),
        (translations, "create_and_optimize_stages", ["pipeline_proto", "phases", "known_runner_urns"]),
        (translations, "create_buffer_id", ["name", "kind"]),
    ],
)
def test_a_name_is_there_with_its_parameters(owner: Any, name: str, parameters: list[str]) -> None:
    assert set(parameters) <= set(inspect.signature(getattr(owner, name)).parameters)


def test_sinks_and_state_are_made_through_names_that_can_be_replaced() -> None:
    assert bundle_processor.BeamTransformFactory._known_urns[compat.DATA_OUTPUT_URN][0] is compat._sink
    assert bundle_processor.FnApiUserStateContext is compat._user_state
    assert "FnApiUserStateContext(" in inspect.getsource(bundle_processor)


def test_the_phases_are_those_of_beams_own_runner_and_ours() -> None:
    ours = {phase.__name__ for phase in PHASES}
    theirs = set(fn_runner.FnApiRunner.create_stages.__code__.co_names) & set(dir(translations))
    phases = {name for name in theirs if callable(getattr(translations, name)) and name != "create_and_optimize_stages"}
    assert phases <= ours
    assert ours - phases == {"annotate_stateful_dofns_as_roots", "expand_reshuffle", "expand_test_stream"}


def test_windows_and_values_have_their_microseconds() -> None:
    window = IntervalWindow(1, 2)
    assert (window._start_micros, window._end_micros) == (1_000_000, 2_000_000)
    assert windowed_value.create("a", 5, (window,)).timestamp_micros == 5
    assert callable(operations.Operation.process)


def test_stages_of_beams_own_runner_in_this_process_keep_their_sinks() -> None:
    class Factory:
        state_handler = None

        def get_coder(self, name: str) -> Any:
            return BytesCoder()

    with pytest.raises(AttributeError):  # Beam's own, which asks the factory for more than this one has
        compat._sink(Factory(), "t", object(), object(), {})
