"""Naiad's vocabulary: vertices with notices and loops, and collections that change, kept up to date."""

from headrace.dialects.naiad.epochproducer import Producer
from headrace.dialects.naiad.pipelinegraph import messages
from headrace.engine.timely.executor import Sent
from headrace.model.timely.vertex import Vertex
from headrace.model.timely.vertexgraph import Feedback, Graph, LoopContext, Stream

__all__ = ["Feedback", "Graph", "LoopContext", "Producer", "Sent", "Stream", "Vertex", "messages"]
