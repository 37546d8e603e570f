"""The server of a system: serves the views and topics of its app, ad-hoc SQL, and a cluster of topologies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headrace.dialects.storm.cluster.control import Control
from headrace.server.http.listening import PORT
from headrace.server.process.childprocess import ServerProcess
from headrace.server.security.proxies import Proxies
from headrace.server.security.tokens import Tokens
from headrace.server.service import Operations, Service
from headrace.views.adhoc.sparkengine import SparkAdHoc
from headrace.views.declare.app import App
from headrace.views.stores import Store


@dataclass(frozen=True)
class Served:
    """The file of an app, the URL of its store, its log (as `feed_of` takes it) and the directory of its master data.

    Ad-hoc SQL may run on the Spark master `spark`. The topologies of the cluster in the directory `storm` are served,
    too, if it is given.
    """

    app: str
    store: str
    log: str
    master: str
    spark: str
    storm: str = ""


def service_of(arguments: Mapping[str, Any], operations: Operations) -> Service:
    """Makes the service of the fields of a `Served`."""
    served = Served(**arguments)
    store, master = Store(served.store), Path(served.master)
    spark = SparkAdHoc(master=served.spark)
    service = Service.of(App.load(served.app), store, served.log, operations, master=master, spark=spark)
    return replace(service, topologies=Control(served.storm)) if served.storm else service


def server_process(
    served: Served,
    operations: Operations,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    tokens: Tokens = Tokens(),
    proxies: Proxies = Proxies(),
) -> ServerProcess:
    """Makes the server of a system, in a process of its own."""
    return ServerProcess(
        f"{__name__}:{service_of.__name__}",
        asdict(served),
        operations,
        host=host,
        port=port,
        tokens=tokens,
        proxies=proxies,
    )
