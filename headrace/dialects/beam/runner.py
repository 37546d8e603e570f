"""The runner: takes a Beam pipeline, has Beam fuse it into stages, and runs these on Headrace."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.pipeline_utils import (
    group_by_key_input_visitor,
    merge_common_environments,
    merge_superset_dep_environments,
    validate_pipeline_graph,
)
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms import environments

from headrace.dialects.beam.batchgraph import batch_pipeline
from headrace.dialects.beam.beamscripts import scripts_of
from headrace.dialects.beam.local import LocalHandle
from headrace.dialects.beam.options import HeadraceOptions
from headrace.dialects.beam.phases import fused_stages
from headrace.dialects.beam.result import HeadraceResult
from headrace.dialects.beam.stagespecs import StageSpec, stage_specs
from headrace.dialects.beam.streamgraph import stream_pipeline
from headrace.dialects.beam.unsupported import check_expansion, check_transforms
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Pipeline
from headrace.model.times import now


class HeadraceRunner(PipelineRunner):
    """Runs Apache Beam pipelines on Headrace, and so on Spark.

    `drain` plans splittable DoFns to be cut short, as Beam's own runner does in its tests; `local` runs a batch in
    this process, without Spark.

    >>> import apache_beam as beam
    >>> from apache_beam.testing.util import assert_that, equal_to
    >>> with beam.Pipeline(runner=HeadraceRunner()) as p:
    ...     words = p | beam.Create(["to", "be", "to"]) | beam.combiners.Count.PerElement()
    ...     _ = assert_that(words, equal_to([("to", 2), ("be", 1)]))
    """

    def __init__(self, *, drain: bool = False, local: bool = False) -> None:
        super().__init__()
        self._drain, self._local = drain, local

    def apply(self, transform: Any, input: Any, options: PipelineOptions) -> Any:
        """Expands a transform; refuses those of Kafka, before Beam starts Java to expand them."""
        check_expansion(transform)
        return super().apply(transform, input, options)

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> HeadraceResult:
        """Starts a pipeline; returns its result, which one may wait for."""
        planned = self._planned(pipeline, options)
        streaming = options.view_as(StandardOptions).streaming or _is_unbounded(planned)
        specs = self._fused(planned, streaming=streaming)
        own = options.view_as(HeadraceOptions)
        if streaming:
            # DoFns know no other processing time than that of the machine.
            stream = stream_pipeline(specs, scripts_of(planned), Pipeline(master=own.spark_master), start=now())
            return HeadraceResult(self._start(stream, own))
        if own.checkpoint is not None or own.trigger is not None:
            raise PipelineError(
                "--checkpoint and --trigger are for streams, and this pipeline is a batch; leave them away"
            )
        batch = batch_pipeline(specs, Pipeline(master=own.spark_master))
        return HeadraceResult(LocalHandle.run(batch.graph()) if self._local else batch.run())

    def stages(self, pipeline: Any, options: PipelineOptions) -> list[StageSpec]:
        """Fuses a pipeline into stages; refuses what cannot run here, before anything runs."""
        return self._fused(self._planned(pipeline, options), streaming=False)

    def _start(self, stream: Pipeline, options: HeadraceOptions) -> Any:
        return stream.run(stream=True, checkpoint=options.checkpoint, trigger=options.trigger)

    def _planned(self, pipeline: Any, options: PipelineOptions) -> proto.Pipeline:
        RuntimeValueProvider.set_runtime_options({})
        deterministic = not options.view_as(TypeOptions).allow_non_deterministic_key_coders
        pipeline.visit(group_by_key_input_visitor(deterministic))
        planned = pipeline.to_runner_api(default_environment=environments.EmbeddedPythonEnvironment.default())
        validate_pipeline_graph(planned)
        check_transforms(planned)
        return planned

    def _fused(self, planned: proto.Pipeline, *, streaming: bool) -> list[StageSpec]:
        context, stages = fused_stages(_embedded(planned), drain=self._drain, streaming=streaming)
        return stage_specs(context, stages, streaming=streaming)


def _is_unbounded(pipeline: proto.Pipeline) -> bool:
    """Returns whether a collection of a pipeline has no end."""
    collections = pipeline.components.pcollections.values()
    return any(each.is_bounded == proto.IsBounded.UNBOUNDED for each in collections)


def _embedded(pipeline: proto.Pipeline) -> proto.Pipeline:
    """Returns the pipeline with environments of this process, as far as it leaves a choice."""
    pipeline = merge_superset_dep_environments(pipeline)
    for environment in pipeline.components.environments.values():
        environment.CopyFrom(
            environments.resolve_anyof_environment(
                environment, python_urns.EMBEDDED_PYTHON, common_urns.environments.DOCKER.urn
            )
        )
    return merge_common_environments(pipeline)
