"""Options of the runner, as Beam parses them from the command line."""

from __future__ import annotations

from argparse import ArgumentParser

from apache_beam.options.pipeline_options import PipelineOptions


class HeadraceOptions(PipelineOptions):
    """Options of the Headrace runner.

    >>> options = PipelineOptions(["--spark_master=local[2]"]).view_as(HeadraceOptions)
    >>> options.spark_master, options.checkpoint
    ('local[2]', None)
    """

    @classmethod
    def _add_argparse_args(cls, parser: ArgumentParser) -> None:
        parser.add_argument("--spark_master", default=None, help="master of the Spark session, e.g. local[4]")
        parser.add_argument("--checkpoint", default=None, help="directory of a stream's state and progress")
        parser.add_argument("--trigger", default=None, help="time between micro-batches, e.g. '1 second'")
