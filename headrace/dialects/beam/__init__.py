"""Apache Beam's own pipelines on Headrace: `--runner=headrace.dialects.beam.HeadraceRunner`."""

from headrace.dialects.beam.options import HeadraceOptions
from headrace.dialects.beam.runner import HeadraceRunner

__all__ = ["HeadraceOptions", "HeadraceRunner"]
