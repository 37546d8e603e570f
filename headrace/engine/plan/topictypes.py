"""Looks up what the values of topics are, in the embedded log or in a schema registry, and derives element types.

No Spark.
"""

from __future__ import annotations

import pyarrow as pa

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
    if source.format is not None:
        return _registered(node, source)
    values = open_topic(node, source.address).settings.values
    try:
        return source.with_values(values)
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None


def _registered(node: Node, source: ReadTopic) -> ReadTopic:
    """Returns a source with the columns of its latest schema in the registry, and that of its keys."""
    who, topic = str(node), source.address.name
    assert source.registry is not None and source.format is not None
    schema, columns = latest_columns(who, source.registry, subject_of(topic), source.format)
    if source.key is not None:
        field = pa.field(source.key, pa.string())
        if source.key_format is not None:
            subject = subject_of(topic, "key")
            _, keys = latest_columns(who, source.registry, subject, source.key_format, source.key)
            if source.key not in keys.names:
                raise PipelineError(
                    f"{node}: key={source.key!r} is no field of the latest schema of {subject!r}; there are "
                    f"{', '.join(keys.names)}"
                )
            field = keys.field(source.key)
        others = [column for column in columns if column.name != source.key]
        columns = pa.schema([field, *others])
    return source.with_registered(columns, schema)
