"""Storm's programming model on the same engine: spouts, bolts and topologies.

Its rooms, in the order in which they may import: `api` declares, `task` computes, `graph` builds pipelines, `cluster`
executes them.
"""

import sys

from headrace.dialects.storm.api import components, config, failures, groupings, rolling, topology, totopic, tuples
from headrace.dialects.storm.api.components import BasicBolt, Bolt, Spout, TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.failures import DeadLetter, ErrorReport
from headrace.dialects.storm.api.groupings import CustomGrouping
from headrace.dialects.storm.api.rolling import SlidingCounter
from headrace.dialects.storm.api.topology import Topology, TopologyBuilder, TopologyError
from headrace.dialects.storm.api.totopic import ToTopic
from headrace.dialects.storm.api.tuples import Tuple
from headrace.dialects.storm.cluster import topologystatus
from headrace.dialects.storm.cluster.localcluster import LocalCluster
from headrace.dialects.storm.cluster.topologystatus import TaskStatus, TopologyStatus

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

# State of bolts and spouts may contain pickles that name the modules of an earlier version.
for _name, _module in {
    "collected": failures,
    "components": components,
    "config": config,
    "groupings": groupings,
    "outcomes": failures,
    "rolling": rolling,
    "status": topologystatus,
    "topology": topology,
    "totopic": totopic,
    "tuples": tuples,
}.items():
    sys.modules[f"{__name__}.{_name}"] = _module
