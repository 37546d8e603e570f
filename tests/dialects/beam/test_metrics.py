"""Metrics of several tasks are those of one."""

from __future__ import annotations

from typing import Any

from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import BoundedTrieData, DistributionData, GaugeData

from headrace.dialects.beam.compat import FnApiMetrics
from headrace.dialects.beam.metrics import METRIC, MonitoredCell, infos_by_stage


def task(
    count: int, sizes: DistributionData, gauge: GaugeData, texts: set[str], path: tuple[str, ...]
) -> MonitoredCell:
    trie = BoundedTrieData()
    trie.add(path)
    infos: list[Any] = [
        monitoring_infos.int64_user_counter("ns", "counter", count, ptransform="t"),
        monitoring_infos.int64_user_distribution("ns", "sizes", sizes, ptransform="t"),
        monitoring_infos.int64_user_gauge("ns", "gauge", gauge, ptransform="t"),
        monitoring_infos.user_set_string("ns", "texts", texts, ptransform="t"),
        monitoring_infos.user_bounded_trie("ns", "trie", trie, ptransform="t"),
    ]
    return MonitoredCell(tuple(info.SerializeToString() for info in infos))


def test_cells_of_two_tasks_merge() -> None:
    late = task(2, DistributionData(9, 2, 4, 5), GaugeData(7, timestamp=20), {"a"}, ("x",))
    early = task(3, DistributionData(1, 1, 1, 1), GaugeData(8, timestamp=10), {"b"}, ("y",))
    merged = {("stage", METRIC): late.merged(early)}
    found = FnApiMetrics(infos_by_stage(merged), user_metrics_only=True).query()
    assert found["counters"][0].committed == 5
    assert found["distributions"][0].committed.data == DistributionData(10, 3, 1, 5)
    assert found["gauges"][0].committed.value == 7
    assert found["string_sets"][0].committed == {"a", "b"}
    (trie,) = found["bounded_tries"]
    assert trie.committed.contains(("x",)) and trie.committed.contains(("y",))
