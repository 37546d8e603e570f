"""Looks up what the values of topics are, in the embedded log or in a schema registry, and derives element types.

No Spark.
"""

from __future__ import annotations

from headrace.edges.registryvalues import latest_columns, subject_of
from headrace.edges.topicranges import open_topic
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph, Node
from headrace.model.topics import ReadTopic


def with_topic_types(graph: Graph) -> Graph:
    """Returns the graph with the element types of the topics that it reads. Refuses topics that do not exist.

    >>> import headrace as hr, tempfile
    >>> log = hr.Log(tempfile.mkdtemp())
    >>> _ = log.create("visits", values="user string, ts timestamp")
    >>> p = hr.Pipeline()
    >>> p | hr.ReadTopic("visits", log=str(log.path))
    <PCollection of the topic's values from 'ReadTopic', unbounded>
    >>> with_topic_types(p.graph()).nodes[0].outputs[0]
    <PCollection of rows from 'ReadTopic', unbounded>
    """
    unknown = [node for node in graph if isinstance(node.transform, ReadTopic) and not node.transform.is_known]
    return graph.with_transforms({node: _known(node) for node in unknown}) if unknown else graph


def _known(node: Node) -> ReadTopic:
    source = node.transform
    assert isinstance(source, ReadTopic)
    if source.registry is not None and source.format is not None:
        subject = subject_of(source.address.name)
        schema, columns = latest_columns(str(node), source.registry, subject, source.format)
        return source.with_registered(columns, schema)
    values = open_topic(node, source.address).settings.values
    try:
        return source.with_values(values)
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None
