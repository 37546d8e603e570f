"""Beam's own FnApiRunnerTest, in this process."""

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from headrace.dialects.beam import HeadraceRunner


class LocalRunnerTest(fn_runner_test.FnApiRunnerTest):
    def create_pipeline(self, is_drain=False):
        return beam.Pipeline(runner=HeadraceRunner(drain=is_drain, local=True))
