"""Word count, as an Apache Beam program: nothing in it knows Headrace but the runner's name.

    python examples/beam_wordcount.py --input 'in/*.txt' --output out/counts \
        --runner=headrace.dialects.beam.HeadraceRunner

Without --runner, Beam runs it by itself.
"""

import argparse
import re

import apache_beam as beam
from apache_beam.io import ReadFromText, WriteToText
from apache_beam.options.pipeline_options import PipelineOptions


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True, help="text files, e.g. 'in/*.txt'")
    parser.add_argument("--output", required=True, help="the beginning of the names of the files to write")
    known, rest = parser.parse_known_args(argv)
    with beam.Pipeline(options=PipelineOptions(rest)) as p:
        words = p | ReadFromText(known.input) | beam.FlatMap(lambda line: re.findall(r"[\w']+", line.lower()))
        counts = words | beam.combiners.Count.PerElement()
        counts | beam.MapTuple(lambda word, count: f"{word}: {count}") | WriteToText(known.output)


if __name__ == "__main__":
    main()
