"""Apache Beam's own pipelines on Headrace: `--runner=headrace.dialects.beam.HeadraceRunner`."""

from headrace.dialects.beam.quietimports import import_beam

import_beam()  # before anything else does

from headrace.dialects.beam.options import HeadraceOptions  # noqa: E402
from headrace.dialects.beam.runner import HeadraceRunner  # noqa: E402

__all__ = ["HeadraceOptions", "HeadraceRunner"]
