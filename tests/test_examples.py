"""Runs the examples on the suite's session and checks their answers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

# Examples are scripts in a folder of their own; the workers must find them, too.
import autocomplete
import changing_graphs
import chatter
import dstreams_wordcount
import hourly_actions
import pytest
import timely_vertices
import user_scores
import wordcount
from pyspark.sql import SparkSession

import headrace as hr
from tests.scale import only_full

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where examples make their own input


def test_autocomplete_gives_the_three_most_frequent_tags(tmp_path: Path) -> None:
    Path("tags.txt").write_text("#this #this #that\n#to #to #to\n")
    completions = autocomplete.run(str(tmp_path / "tags.txt"), str(tmp_path / "found"))
    assert dict(completions) == {
        "t": [(3, "to"), (2, "this"), (1, "that")],
        "th": [(2, "this"), (1, "that")],
        "to": [(3, "to")],
    }
    assert chatter.read_completions("found").keys() == {"t", "th", "thi", "this", "tha", "that", "to"}


def test_autocomplete_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    autocomplete.main(target=str(tmp_path / "found"))
    assert capsys.readouterr().out.splitlines()[0] == "#t    to (3), this (2), that (1)"


def test_wordcount_counts_by_the_minute(tmp_path: Path) -> None:
    source = str(tmp_path / wordcount.write_input())
    top = wordcount.run(source, str(tmp_path / "counts"))
    assert top == [
        (datetime(2026, 1, 1, 12, 0, tzinfo=UTC), [("the", 5), ("wheel", 3), ("turns", 2)]),
        (datetime(2026, 1, 1, 12, 1, tzinfo=UTC), [("corn", 3), ("the", 1), ("stone", 1)]),
    ]
    _, counts = chatter.recount(source)
    assert chatter.read_counts("counts") == counts
    assert counts["12:00", "wheel"] == 3


def test_user_scores_are_those_of_the_worked_example(tmp_path: Path) -> None:
    totals = user_scores.run(str(tmp_path / user_scores.write_input()))
    assert [score for _, score in totals["everything"]] == [48]
    assert [score for _, score in totals["two minutes"]] == [14, 18, 4, 12]
    assert [score for _, score in totals["sessions with a gap of 61 s"]] == [36, 12]
    assert [str(window) for window, _ in totals["two minutes"]][:1] == ["[2026-01-01T12:00:00Z, 2026-01-01T12:02:00Z)"]


def test_user_scores_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    user_scores.main(str(tmp_path / user_scores.write_input()))
    assert capsys.readouterr().out.startswith("everything\n    48  [-inf, +inf)\ntwo minutes\n    14  ")


def test_hourly_actions_are_those_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    hourly_actions.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0].split() == ["hour", "open", "close", "ship"]
    assert lines[-1].startswith("2000 events in the table hourly_actions of sqlite:///out/")
    counts: Counter[tuple[str, str]] = Counter()
    for file in Path("out/hourly-actions").glob("*.json"):
        for event in map(json.loads, file.read_text().splitlines()):
            counts[event["at"][:13].replace("T", " "), event["action"]] += 1
    table = hourly_actions.read_table("sqlite:///out/hourly-actions/actions.db")
    assert {(hour, action): n for hour, by_action in table for action, n in by_action.items()} == counts


def test_chatter_answers_equal_a_recount(tmp_path: Path) -> None:
    source = str(tmp_path / "chatter.txt")
    chatter.make_chatter(source, lines=500)
    chatter.completions_of(source, str(tmp_path / "completions")).run().wait()
    chatter.counts_of(source, str(tmp_path / "counts")).run().wait()
    completions, counts = chatter.read_completions("completions"), chatter.read_counts("counts")
    assert (completions, counts) == chatter.recount(source)
    assert counts["12:00", "the"] > 0
    assert chatter.completion_table(completions, "water").row_count > 0
    assert chatter.count_table(counts, minutes=5).row_count == 5


def test_chatter_makes_the_same_chatter_every_time(tmp_path: Path) -> None:
    chatter.make_chatter("a.txt", lines=50)
    chatter.make_chatter("b.txt", lines=50)
    assert Path("a.txt").read_text() == Path("b.txt").read_text()
    assert len(Path("a.txt").read_text().splitlines()) == 50


def test_chatter_says_so_when_answers_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CHATTER", "COMPLETIONS", "COUNTS"):
        monkeypatch.setattr(chatter, name, str(tmp_path / getattr(chatter, name)))
    chatter.main("300")
    assert "each equals a recount in plain Python" in capsys.readouterr().out
    monkeypatch.setattr(chatter, "recount", lambda path: ({}, {}))
    with pytest.raises(SystemExit, match="differ from a recount"):
        chatter.main("300")


def test_stages_of_the_autocompletion() -> None:
    p = hr.Pipeline()
    autocomplete.autocomplete(p | hr.ReadText("tweets.txt")) | hr.WriteJson("found")
    assert p.explain().splitlines() == [
        "write  WriteJson('found')",
        "└─ python  top 3",
        "   └─ shuffle  top 3 by key",
        "      └─ python  count/count · prefixes",
        "         └─ shuffle  count/count by key",
        "            └─ python  tags · count/pair",
        "               └─ read  ReadText('tweets.txt')",
    ]


def test_dstreams_wordcount_counts_what_was_sent(spark: SparkSession) -> None:
    counted, sent = dstreams_wordcount.run(spark.sparkContext, 1.5)
    assert counted == sent and sent["the"] > 1


def test_changing_graphs_draws_the_answer_after_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    changing_graphs.main(["components"])
    assert capsys.readouterr().out.splitlines() == [
        "components",
        "  5 changes: (ash─bay─cove)   (dale─elm─fen)",
        "  1 changes: (ash─bay─cove─dale─elm─fen)",
        "  2 changes: (ash─bay─cove)   (dale─elm─fen)",
    ]


@only_full("the same way, with another program; the programs themselves are compared with networkx")
def test_changing_graphs_answers_every_question(capsys: pytest.CaptureFixture[str]) -> None:
    changing_graphs.main(["distances", "ranks", "pieces", "cores"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    assert lines[2].endswith("elm ▪▪▪▪   fen ▪▪▪▪▪")
    assert lines[11].endswith("5 bolt → axle   22 bolt → wagon   5 bolt → wheel   1 wheel → axle   2 wheel → wagon")
    assert lines[15].endswith("ash═bay   ash═cove   bay═cove   dale═elm   dale═fen   elm═fen")


def test_vertices_answer_after_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    timely_vertices.main()
    assert capsys.readouterr().out.splitlines() == [
        "epoch 0: 6 ways; ash 2, bay 4, cove 2, dale 2, elm 2",
        "  (ash─bay─cove)   (dale─elm)",
        "  ash ·   bay ▪   cove ▪▪",
        "epoch 1: 4 ways; cove 4, dale 4, elm 4, fen 2",
        "  (ash─bay─cove─dale─elm─fen)",
        "  ash ·   bay ▪   cove ▪▪   dale ▪▪▪   elm ▪▪▪▪   fen ▪▪▪▪▪",
        "epoch 2: 2 ways; ash 4, elm 6",
        "  (ash─bay─cove─dale─elm─fen)",
        "  ash ·   bay ▪   cove ▪▪   dale ▪▪   elm ▪   fen ▪▪",
    ]
