"""Programs that come with Beam run unmodified, and give what Beam's own runner gives.

They run in this process, and with FULL on Spark, too.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.examples import (
    streaming_wordcount,
    wordcount,
    wordcount_dataframe,
    wordcount_debugging,
    wordcount_minimal,
    wordcount_with_metrics,
)
from apache_beam.examples.complete import autocomplete, tfidf, top_wikipedia_sessions
from apache_beam.examples.complete.game import game_stats, hourly_team_score, leader_board, user_score
from apache_beam.options.pipeline_options import PipelineOptions

from headrace.log import Log
from tests.dialects.beam.logpubsub import ReadFromLog, WriteToLog
from tests.scale import only_full

THEIRS = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
HERE = "tests.dialects.beam.localstream.LocalRunner"
SPARK = "headrace.dialects.beam.HeadraceRunner"
ON_SPARK = only_full("the same in this process, and other pipelines on Spark")

_TEXT = """Flourish the crown, and Flourish, I pray
the king; and Flourish: a stomach for the crown
KING LEAR	O, let me not be mad
"""
_EDITS = [(0, "ann"), (1, "ann"), (2, "ann"), (0, "bob"), (3601, "bob"), (7200, "bob"), (3024, "cid")]
_GAMES = [
    ("user1_team1", "team1", 18, 1447686663000),
    ("user1_team1", "team1", 18, 1447690263000),
    ("user2_team2", "team2", 2, 1447690263000),
    ("user3_team3", "team3", 8, 1447690263000),
    ("user4_team3", "team3", 5, 1447690263000),
    ("user1_team1", "team1", 14, 1447697463000),
    ("robot1_team1", "team1", 9000, 1447697463000),
    ("robot2_team2", "team2", 9001, 1447697463000),
]


def write_inputs(folder: Path) -> None:
    """Writes what the programs read."""
    (folder / "text.txt").write_text(_TEXT)
    (folder / "second.txt").write_text("the king is mad\n")
    edits = [json.dumps({"timestamp": time, "contributor_username": user}) for time, user in _EDITS]
    (folder / "edits.json").write_text("\n".join(edits) + "\n")
    (folder / "games.csv").write_text("\n".join(games()) + "\nno event\n")


def games() -> list[str]:
    """The events of the game."""
    return [",".join(map(str, (*event, "2015-11-16 15:11:03.921"))) for event in _GAMES]


_HEADER = "word,count"
_PROGRAMS: dict[str, tuple[Any, list[str]]] = {
    "wordcount": (wordcount.run, ["--input={}/*.txt"]),
    "wordcount_minimal": (wordcount_minimal.main, ["--input={}/*.txt"]),
    "wordcount_debugging": (wordcount_debugging.run, ["--input={}/text.txt"]),
    "wordcount_with_metrics": (wordcount_with_metrics.main, ["--input={}/*.txt"]),
    "wordcount_dataframe": (wordcount_dataframe.run, ["--input={}/*.txt"]),
    "autocomplete": (autocomplete.run, ["--input={}/text.txt"]),
    "tfidf": (tfidf.run, ["--uris={}/*.txt"]),
    "top_wikipedia_sessions": (top_wikipedia_sessions.run, ["--input={}/edits.json", "--sampling_threshold=1.0"]),
    "user_score": (user_score.run, ["--input={}/games.csv"]),
}


def lines(run: Any, arguments: list[str], folder: Path, runner: str) -> Counter[str]:
    """The lines that a program writes with a runner."""
    out = folder / runner
    run([each.format(folder) for each in arguments] + [f"--output={out}/part", f"--runner={runner}"])
    found = Counter(line for path in out.glob("part*") for line in path.read_text().splitlines())
    if _HEADER in found:
        found[_HEADER] = 1  # each file has it, and how many there are is the runner's choice
    return found


@pytest.mark.parametrize("runner", [HERE, pytest.param(SPARK, marks=ON_SPARK)], ids=["here", "spark"])
@pytest.mark.parametrize("name", _PROGRAMS)
@pytest.mark.slow("a program on two runners")
def test_a_program_writes_what_it_writes_on_beams_runner(
    name: str, runner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if runner == SPARK:
        request.getfixturevalue("spark")
    write_inputs(tmp_path)
    run, arguments = _PROGRAMS[name]
    here, theirs = (lines(run, arguments, tmp_path, each) for each in (runner, THEIRS))
    assert here == theirs
    assert here


# The mobile game

_found: list[Any] = []


def note(element: Any) -> None:
    """Notes an element in this process, where both runners run."""
    _found.append(element)


def _events(p: Any, parse: Any) -> Any:
    return p | beam.Create(games()) | beam.ParDo(parse) | beam.Map(_timed)


def _timed(event: Any) -> Any:
    return beam.window.TimestampedValue(event, event["timestamp"])


def _sessions(pc: Any) -> Any:
    return (
        pc
        | beam.Map(lambda event: (event["user"], event["score"]))
        | beam.WindowInto(beam.window.Sessions(300), timestamp_combiner=beam.window.TimestampCombiner.OUTPUT_AT_EOW)
        | beam.CombinePerKey(lambda _: None)
        | beam.ParDo(game_stats.UserSessionActivity())
        | "means" >> beam.WindowInto(beam.window.FixedWindows(1800))
        | beam.CombineGlobally(beam.combiners.MeanCombineFn()).without_defaults()
    )


_GAME: dict[str, Any] = {
    "hourly_team_score": lambda p: (
        p
        | beam.Create(games())
        | hourly_team_score.HourlyTeamScore("2015-11-16-15-20", "2015-11-16-17-20", window_duration=60)
    ),
    "leader_board teams": lambda p: (
        _events(p, leader_board.ParseGameEventFn()) | leader_board.CalculateTeamScores(60, 120)
    ),
    "leader_board users": lambda p: _events(p, leader_board.ParseGameEventFn()) | leader_board.CalculateUserScores(120),
    "game_stats spammers": lambda p: (
        _events(p, game_stats.ParseGameEventFn())
        | "scores" >> beam.Map(lambda event: (event["user"], event["score"]))
        | game_stats.CalculateSpammyUsers()
    ),
    "game_stats sessions": lambda p: _sessions(_events(p, game_stats.ParseGameEventFn())),
}


@pytest.mark.parametrize("name", _GAME)
def test_the_game_scores_as_on_beams_runner(name: str) -> None:
    found = []
    for runner in (HERE, THEIRS):
        _found.clear()
        options = PipelineOptions([f"--runner={runner}", "--allow_unsafe_triggers"])
        with beam.Pipeline(options=options) as p:
            _GAME[name](p) | "note" >> beam.Map(note)
        found.append(sorted(map(repr, _found)))
    assert found[0] == found[1]
    assert found[0] or name == "leader_board users"


# Streams, with the embedded log in Pub/Sub's place


@pytest.mark.parametrize(
    "runner",
    [HERE, pytest.param(SPARK, marks=[ON_SPARK, pytest.mark.slow("a micro-batch for every four records")])],
    ids=["here", "spark"],
)
def test_streaming_wordcount_over_the_log(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if runner == SPARK:
        request.getfixturevalue("spark")
    log = Log(tmp_path / "log")
    texts = [(second, f"w{second % 3} the w{second % 2}") for second in range(0, 60, 4)]
    fill(log, [(second, text.encode()) for second, text in texts])
    log.create("out", values="bytes")
    monkeypatch.setattr(beam.io, "ReadFromPubSub", lambda topic: ReadFromLog(str(log.path), topic))
    monkeypatch.setattr(beam.io, "WriteToPubSub", partial(WriteToLog, str(log.path)))
    arguments = ["--input_topic=in", "--output_topic=out", f"--runner={runner}"]
    streaming_wordcount.run(arguments, save_main_session=False)
    expected = Counter((second // 15, word) for second, text in texts for word in text.split())
    assert written(log) == sorted(f"{word}: {count}".encode() for (_, word), count in expected.items())


def test_leader_board_over_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path / "log")
    fill(log, [(event[3] // 1000, line.encode()) for event, line in zip(_GAMES, games(), strict=True)])
    log.create("out", values="bytes")
    monkeypatch.setattr(beam.io, "ReadFromPubSub", lambda topic: ReadFromLog(str(log.path), topic))
    monkeypatch.setattr(leader_board, "WriteToBigQuery", lambda *_: WriteToLog(str(log.path), "out"))
    arguments = ["--topic=in", "--dataset=none", "--project=none", "--allow_unsafe_triggers", f"--runner={HERE}"]
    leader_board.run(arguments, save_main_session=False)
    rows = [eval(row) for row in written(log)]
    expected: Counter[Any] = Counter()
    for _, team, score, time in _GAMES:
        expected[team, time // 3600_000] += score
    assert sorted((row["team"], row["total_score"]) for row in rows if "team" in row) == sorted(
        (team, total) for (team, _), total in expected.items()
    )


def fill(log: Log, records: list[tuple[int, bytes]]) -> None:
    """Makes the topic that is read."""
    topic = log.create("in", values="bytes")
    for second, value in records:
        topic.append(0, topic.batch([value], timestamps=[second * 1_000_000]))


def written(log: Log) -> list[bytes]:
    """What was written to the log."""
    return sorted(record.value for record in log.topic("out").read(0))
