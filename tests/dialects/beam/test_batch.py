"""Beam pipelines as batches on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import beam_wordcount
import pytest
from apache_beam.io.kafka import ReadFromKafka
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from pyspark.sql import SparkSession

from headrace.dialects.beam import HeadraceRunner
from headrace.dialects.beam.errors import BeamPipelineError
from headrace.model.errors import PipelineError


class CountedTotal(beam.DoFn):  # type: ignore[misc]
    """Emits the sum of each key when its window ends, and counts its elements."""

    TOTAL = CombiningValueStateSpec("total", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        total: Any = beam.DoFn.StateParam(TOTAL),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        Metrics.counter("totals", "elements").inc()
        total.add(element[1])
        end.set(window.end)

    @on_timer(END)
    def emit(self, key: str = beam.DoFn.KeyParam, total: Any = beam.DoFn.StateParam(TOTAL)) -> Any:
        yield key, total.read()


def test_state_timers_side_inputs_windows_and_metrics(spark: SparkSession) -> None:
    p = beam.Pipeline(runner=HeadraceRunner())
    factor = p | "factor" >> beam.Create([10])
    values = p | beam.Create([("a", 1, 1), ("b", 2, 2), ("a", 3, 3), ("a", 4, 61)])
    pairs = values | beam.Map(lambda each: beam.window.TimestampedValue(each[:2], each[2]))
    windowed = pairs | beam.WindowInto(beam.window.FixedWindows(60))
    totals = windowed | beam.ParDo(CountedTotal())
    scaled = totals | beam.Map(lambda pair, by: (pair[0], pair[1] * by), beam.pvalue.AsSingleton(factor))
    assert_that(scaled, equal_to([("a", 40), ("b", 20), ("a", 40)]))
    result = p.run()
    assert result.wait_until_finish() == PipelineState.DONE
    (elements,) = result.metrics().query(MetricsFilter().with_name("elements"))["counters"]
    assert elements.committed == 4


def test_an_error_names_the_transform_as_beam_does(spark: SparkSession) -> None:
    p = beam.Pipeline(runner=HeadraceRunner())
    p | beam.Create([1, 0]) | "before" >> beam.Map(abs) | "divide" >> beam.Map(lambda n: 1 // n)
    result = p.run()
    with pytest.raises(BeamPipelineError, match=r"ZeroDivisionError.*\[while running 'divide'\]") as caught:
        result.wait_until_finish()
    assert caught.value.transform == "divide"
    assert result.state == PipelineState.FAILED


def test_the_example_gives_what_beams_own_runner_gives(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("To be, or not\nto be\n")
    runs = {"here": "--runner=headrace.dialects.beam.HeadraceRunner", "theirs": "--runner=FnApiRunner"}
    lines = {}
    for name, runner in runs.items():
        beam_wordcount.main(["--input", f"{tmp_path}/in.txt", "--output", f"{tmp_path}/{name}", runner])
        lines[name] = sorted(line for path in tmp_path.glob(f"{name}-*") for line in path.read_text().splitlines())
    assert lines["here"] == lines["theirs"] == ["be: 2", "not: 1", "or: 1", "to: 2"]


def test_a_multimap_whose_types_are_not_known_finds_its_keys() -> None:
    """Beam encodes a key that it asks for with a prefix, which elements between stages do not have."""
    with beam.Pipeline(runner=HeadraceRunner(local=True)) as p:
        side = p | "side" >> beam.Create([("a", 1), ("b", 2), ("a", 3)]).with_output_types(Any)
        found = p | beam.Create(["a", "c"]) | beam.Map(lambda k, of: (k, sorted(of[k])), beam.pvalue.AsMultiMap(side))
        assert_that(found, equal_to([("a", [1, 3]), ("c", [])]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint=/tmp/x"], "--checkpoint and --trigger are for streams"),
        (["--trigger=1 second"], "--checkpoint and --trigger are for streams"),
    ],
)
def test_options_that_a_batch_has_not_are_refused(options: list[str], message: str) -> None:
    p = beam.Pipeline(runner=HeadraceRunner(), options=PipelineOptions(options))
    p | beam.Create([1])
    with pytest.raises(PipelineError, match=message):
        p.run()


def test_a_flatten_of_nothing_is_empty() -> None:
    with beam.Pipeline(runner=HeadraceRunner(local=True)) as p:
        assert_that(() | beam.Flatten(pipeline=p), equal_to([]))


def test_transforms_of_kafka_are_refused_before_java_is_started() -> None:
    p = beam.Pipeline(runner=HeadraceRunner())
    read = ReadFromKafka({"bootstrap.servers": "localhost:1"}, ["clicks"], expansion_service="localhost:1")
    with pytest.raises(PipelineError, match=r"'clicks': Beam's transforms of Kafka are written in Java"):
        p | "clicks" >> read
