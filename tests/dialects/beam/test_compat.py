"""Every name of Beam's insides that this dialect touches is still there, and means what it did."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.io import iobase
from apache_beam.pvalue import AsDict, AsList, AsSingleton, SideInputData
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.worker import bundle_processor, operations, sdk_worker, statesampler
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils import windowed_value

from headrace.dialects.beam import compat
from headrace.dialects.beam.phases import PHASES, STREAM_PHASES


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
        (statesampler, "get_current_tracker", []),
        (statesampler.StateSampler, "scoped_state", ["name_context", "state_name", "metrics_container"]),
        (compat.MetricsContainer, "to_runner_api_monitoring_infos", ["transform_id"]),
        (compat.SingleFileSource, "__init__", ["file_based_source", "file_name"]),
        (fn_runner.FnApiMetrics, "__init__", ["step_monitoring_infos", "user_metrics_only"]),
        (translations, "create_and_optimize_stages", ["pipeline_proto", "phases", "known_runner_urns"]),
        (translations, "create_buffer_id", ["name", "kind"]),
    ],
)
def test_a_name_is_there_with_its_parameters(owner: Any, name: str, parameters: list[str]) -> None:
    assert set(parameters) <= set(inspect.signature(getattr(owner, name)).parameters)


def test_the_reader_of_bounded_sources_has_its_name() -> None:
    reader = iobase.SDFBoundedSourceReader()._create_sdf_bounded_source_dofn()
    assert (type(reader).__module__, type(reader).__name__) == compat.SOURCE_READER


def test_sinks_and_state_are_made_through_names_that_can_be_replaced() -> None:
    assert bundle_processor.BeamTransformFactory._known_urns[compat.DATA_OUTPUT_URN][0] is compat._sink
    assert bundle_processor.FnApiUserStateContext is compat._user_state
    assert "FnApiUserStateContext(" in inspect.getsource(bundle_processor)


def test_the_phases_are_those_of_beams_own_runner_and_ours() -> None:
    ours = {phase.__name__ for phase in PHASES}
    theirs = set(fn_runner.FnApiRunner.create_stages.__code__.co_names) & set(dir(translations))
    phases = {name for name in theirs if callable(getattr(translations, name)) and name != "create_and_optimize_stages"}
    assert phases <= ours
    assert ours - phases == {
        "annotate_stateful_dofns_as_roots",
        "expand_reshuffle",
        "expand_test_stream",
        "read_nothing",
    }
    of_streams = {phase.__name__ for phase in STREAM_PHASES}
    assert of_streams - ours == {"expand_timed_combines", "annotate_side_readers_as_roots"}


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


def test_a_view_of_one_element_is_known_by_its_function() -> None:
    p = beam.Pipeline()
    numbers = p | beam.Create([1])
    views = [view(numbers)._side_input_data().to_runner_api(None) for view in (AsSingleton, AsList, AsDict)]
    assert [compat.is_singleton(SideInputData.from_runner_api(view, None)) for view in views] == [True, False, False]


def test_an_import_in_a_worker_logs_nothing() -> None:
    script = "import headrace.dialects.beam, logging; print(logging.getLogger().handlers)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")
