"""Tests the building of graphs: labels, places, composites, tags, and the error for each wrong use."""

import pytest

import headrace as hr
from headrace.model.panes import GLOBAL
from headrace.model.pipeline import Graph


def labels(p: hr.Pipeline) -> list[str]:
    return [node.label for node in p.graph()]


def test_default_labels_are_numbered() -> None:
    p = hr.Pipeline()
    numbers = p | "numbers" >> hr.Create([1])
    numbers | hr.Map(abs)
    numbers | hr.Map(abs)
    numbers | hr.Map(lambda x: x)
    assert labels(p) == ["numbers", "Map(abs)", "Map(abs) 2", "Map(λ)"]


def test_a_composite_prefixes_the_labels_of_its_parts() -> None:
    class Twice(hr.PTransform):
        def expand(self, inputs: hr.PCollection) -> hr.PCollection:
            return inputs | "a" >> hr.Map(abs) | "b" >> hr.Map(abs)

    p = hr.Pipeline()
    p | "in" >> hr.Create([1]) | "first" >> Twice() | "second" >> Twice()
    assert labels(p) == ["in", "first/a", "first/b", "second/a", "second/b"]


def test_labelling_leaves_the_transform_as_it_was() -> None:
    plain = hr.Map(abs)
    labelled = "x" >> plain
    assert plain.label is None and labelled.label == "x"


def test_a_node_knows_the_users_file_and_line() -> None:
    p = hr.Pipeline()
    p | hr.Create([1]) | hr.Count.per_element()
    for node in p.graph():
        assert node.place.file.endswith("test_pipeline.py")
    assert len({node.place.line for node in p.graph()}) == 1


def test_the_graph_is_immutable_once_built() -> None:
    p = hr.Pipeline()
    numbers = p | hr.Create([1])
    graph = p.graph()
    assert isinstance(graph, Graph) and isinstance(graph.nodes, tuple)
    with pytest.raises(AttributeError):
        graph.nodes = ()  # type: ignore[misc]
    with pytest.raises(hr.PipelineError, match=r"'late'.*can no longer change"):
        numbers | "late" >> hr.Map(abs)


def test_windowing_boundedness_and_types_flow() -> None:
    p = hr.Pipeline()
    words = p | hr.Create(["a"])
    assert words.element_type is str and words.bounded and words.windowing == GLOBAL
    windowed = words | hr.WindowInto(hr.FixedWindows(60))
    pairs = windowed | hr.KeyBy(len)
    assert windowed.element_type is str
    assert pairs.windowing.window == hr.FixedWindows(60)
    assert (pairs | hr.GroupByKey()).windowing.window == hr.FixedWindows(60)


def test_types_are_read_from_hints() -> None:
    def parse(line: str) -> tuple[str, int]:
        return line, 1

    def words(line: str) -> list[str]:
        return line.split()

    p = hr.Pipeline()
    lines = p | hr.Create(["a"])
    assert (lines | hr.Map(parse)).element_type == tuple[str, int]
    assert (lines | hr.FlatMap(words)).element_type is str
    assert (lines | hr.Filter(str.isalpha)).element_type is str
    assert (lines | hr.Map(lambda x: x)).element_type is None
    assert (lines | hr.Map(lambda x: x).with_output_types(int)).element_type is int


def test_several_outputs_by_tag() -> None:
    p = hr.Pipeline()
    parts = p | hr.Create([1]) | hr.ParDo(lambda x: [x]).with_outputs("bad", main="good")
    assert set(parts) == {"good", "bad"} and parts.good is parts["good"]
    with pytest.raises(KeyError, match="no output tagged 'ugly'; there are 'good', 'bad'"):
        parts["ugly"]


def test_leaving_the_block_with_an_error_does_not_run() -> None:
    with pytest.raises(ZeroDivisionError), hr.Pipeline() as p:
        collected = p | hr.Create([1]) | hr.Collect()
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="has no elements yet"):
        list(collected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p | abs, "is not a transform"),
        (lambda p: p | hr.Create("abc"), r"write Create\(\['abc'\]\)"),
        (lambda p: p | hr.Create([1]) | hr.Create([2]), "a source is applied to the pipeline"),
        (lambda p: p | hr.Create([1]) | hr.ParDo(hr.DoFn), r"write ParDo\(DoFn\(\)\)"),
        (lambda p: p | hr.Create([1]) | hr.ParDo(hr.DoFn()).with_outputs("a", "a"), "output tags must differ"),
        (lambda p: p | hr.Create([1]) | hr.Map(3), "Map takes a function, got 3"),
        (lambda p: p | hr.Create([1]) | "" >> hr.Map(abs), "a label is a non-empty string"),
        (lambda p: p | hr.Create([1]) | hr.WindowInto("1 minute"), r"e.g. WindowInto\(FixedWindows"),
        (lambda p: p | hr.Create([1]) | hr.Partition(lambda x, n: 0, 0), "n must be at least 1, got n=0"),
        (lambda p: p | hr.Create([1]) | hr.Select(), "at least one column"),
        (lambda p: p | hr.Create([1]) | hr.GroupBy("value").aggregate(), "at least one aggregation"),
        (lambda p: p | hr.Create([1]) | hr.GroupBy("value").aggregate(n=3), "is not an aggregation"),
        (lambda p: p | hr.Create([1]) | hr.GroupBy("n").aggregate(n=hr.count()), "already the name of a key"),
        (lambda p: p | hr.Create([1]) | hr.WriteText(""), "takes the path of a directory"),
        (lambda p: p | hr.Create([1]) | hr.WriteText("x", existing="ask"), "'refuse' or 'replace'"),  # type: ignore[arg-type]
        (lambda p: p | hr.ReadText([]), "takes a path or a list of paths"),
        (lambda p: 3 | hr.Flatten(), "is not a collection"),
        (lambda p: (p | hr.Create([1]), hr.Pipeline() | hr.Create([1])) | hr.Flatten(), "different pipelines"),
        (lambda p: p | hr.Create([1]) | hr.CombineGlobally(3), "3"),  # type: ignore[arg-type]
    ],
)
def test_wrong_pipelines_are_refused_with_a_reason(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((hr.PipelineError, TypeError), match=message):
        build(hr.Pipeline())
