"""Refusals by name, before anything runs, of what cannot run here."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as proto

from headrace.model.errors import PipelineError

_REFUSED: Final = {
    "beam:transform:pubsub_read:v1": "reads Pub/Sub, which only Dataflow and Beam's direct runner do themselves; "
    "read a topic of the log or of Kafka with hr.ReadTopic in a pipeline of Headrace's own",
    "beam:transform:pubsub_write:v1": "writes to Pub/Sub, as only Dataflow and Beam's direct runner do themselves; "
    "write with a DoFn of your own",
}


def check_expansion(transform: Any) -> None:
    """Refuses the transforms of Kafka, which Beam has in Java only."""
    if type(transform).__module__ == "apache_beam.io.kafka":
        raise PipelineError(
            f"{transform.label!r}: Beam's transforms of Kafka are written in Java, and Headrace runs Python only; read "
            'a topic with hr.ReadTopic("kafka://HOST:PORT/NAME") in a pipeline of Headrace\'s own, which may write '
            "files or a topic of the log, or read and write it with a DoFn of your own"
        )


def check_transforms(pipeline: proto.Pipeline) -> None:
    """Refuses transforms and environments that cannot run in a Python worker of Spark."""
    for name, transform in pipeline.components.transforms.items():
        reason = _REFUSED.get(transform.spec.urn)
        if reason is not None:
            raise PipelineError(f"{transform.unique_name or name!r} {reason}")
        environment = pipeline.components.environments.get(transform.environment_id)
        if environment is not None and environment.urn not in _ENVIRONMENTS:
            raise PipelineError(
                f"{transform.unique_name or name!r} runs in {environment.urn!r}: transforms of other languages need a "
                "worker of their own, and Headrace runs Python only; use the Python transform"
            )


_ENVIRONMENTS: Final = {
    python_urns.EMBEDDED_PYTHON,
    common_urns.environments.ANYOF.urn,
    common_urns.environments.DEFAULT.urn,
    common_urns.environments.DOCKER.urn,
}
