"""Storm's programming model: spouts, bolts and topologies, as tasks of the same engine."""

from headrace.dialects.storm.cluster import LocalCluster
from headrace.dialects.storm.collected import ErrorReport
from headrace.dialects.storm.components import BasicBolt, Bolt, Spout, TopologyContext
from headrace.dialects.storm.config import Config
from headrace.dialects.storm.groupings import CustomGrouping
from headrace.dialects.storm.outcomes import DeadLetter
from headrace.dialects.storm.rolling import SlidingCounter
from headrace.dialects.storm.status import TaskStatus, TopologyStatus
from headrace.dialects.storm.topology import Topology, TopologyBuilder, TopologyError
from headrace.dialects.storm.totopic import ToTopic
from headrace.dialects.storm.tuples import Tuple

__all__ = [
    "BasicBolt",
    "Bolt",
    "Config",
    "CustomGrouping",
    "DeadLetter",
    "ErrorReport",
    "LocalCluster",
    "SlidingCounter",
    "Spout",
    "TaskStatus",
    "ToTopic",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyError",
    "TopologyStatus",
    "Tuple",
]
