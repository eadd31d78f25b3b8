"""The lines that handlers write with `logging`: once for each committed run, however often a handler runs."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.engine.replay import RequestRow
from penstock.errors import OperationalError
from penstock.history.rerun import Rerun
from penstock.journal.api import Commit
from penstock.log.api import Entry
from penstock.model.call import Call, encoded
from penstock.process import held_lines
from penstock.process.held_lines import RUN_BYTES_MAX, TEXT_MAX, hold_lines
from penstock.process.logs import QUIET, configure
from tests.differential import talking
from tests.differential.inline import Inline

SPEC = "tests.differential.talking:app"
TILLS = "abcd"


class Talk:
    """A runtime whose processes write into one stream."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.stream = io.StringIO()
        configure("driver", "json", "info", self.stream)
        self._holder = hold_lines()
        talking.RUNS.clear()
        self.inline = Inline(folder, partitions, spec=SPEC, name="tills")
        for name in TILLS:
            self.send("create", name, f"new-{name}")
        self.advance()

    def send(self, method: str, name: str, request_id: str, *arguments: Any) -> None:
        call: Call[Any] = Call("Till", name, method, arguments)
        place = int(self.inline.log.end())
        self.inline.log.append([Entry(RequestId(request_id), *encoded(talking.app, call), place)])

    def advance(self) -> None:
        logging.getLogger().handlers[:] = [self._holder]  # without those of pytest, which raise
        self.inline.advance(self.inline.log.end())

    def told(self) -> list[dict[str, Any]]:
        """Return the lines of handlers so far, and forget them."""
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()
        return [line for line in lines if line["logger"] in ("tills", held_lines.__name__)]


@pytest.fixture
def talk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Run tills with so many partitions; leave logging as other tests expect it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    talk = Talk(tmp_path, getattr(request, "param", 1))
    yield talk
    talk.inline.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize("talk", [1, 3], indirect=True)
def test_each_line_is_written_once_in_order(talk: Talk) -> None:
    """Of requests in conflict, which run in several tasks and again, each line is written once, in the order of the log."""
    choose = Random(7)
    for number in range(60):
        first, second = choose.sample(TILLS, 2)
        talk.send("move", first, f"r{number}", talking.Till(second), number % 20)
    talk.advance()
    told = talk.told()
    assert [line["request"] for line in told] == [f"r{number}" for number in range(60)]
    assert [line["event"] for line in told] == [f"moved {number % 20}" for number in range(60)]
    assert {line["role"] for line in told} == {"worker"}
    failed = [line["request"] for line in told if line.get("failed") == "unhandled"]
    assert failed == ["r13", "r33", "r53"]
    assert [line["request"] for line in told if "failed" in line] == failed


@pytest.mark.parametrize("talk", [3], indirect=True)
def test_superseded_runs_write_nothing(talk: Talk) -> None:
    """Requests whose accesses nobody foresees run again; the line of the run that counts is the one that is written."""
    for number in range(60):
        talk.send("roam", TILLS[number % 4], f"r{number}")
    talk.advance()
    totals, expected = dict.fromkeys(TILLS, 0), []
    for number in range(60):  # the same with one thread
        totals[name := TILLS[number % 4]] += 1
        totals[other := TILLS[totals[name] % 4]] += 1
        expected.append(f"roamed to {other}")
    told = talk.told()
    assert [line["request"] for line in told] == [f"r{number}" for number in range(60)]
    assert len(talking.RUNS) > 60
    assert [line["event"] for line in told] == expected


def test_a_commit_that_fails_writes_nothing(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of an epoch that was not committed are dropped; those of its next attempt are written once."""
    journal, failures = talk.inline.journal, [OperationalError("the disk is full")]
    commit = journal.commit
    at_commit: list[int] = []

    def fragile(given: Commit) -> None:
        at_commit.append(len(talk.told()))
        if failures:
            raise failures.pop()
        commit(given)

    monkeypatch.setattr(journal, "commit", fragile)
    talk.send("move", "a", "r1", talking.Till("b"), 5)
    talk.advance()
    assert at_commit == [0, 0]
    assert [line["event"] for line in talk.told()] == ["moved 5"]
    assert len(talking.RUNS) == 2


def test_a_request_that_a_handler_sends_has_its_own_mark(talk: Talk) -> None:
    """The failure of a sent request marks its lines, and not those of its sender."""
    talk.send("pass_on", "a", "r1", talking.Till("b"), 13)
    talk.advance()
    found = [(line["event"], line["request"], line.get("failed")) for line in talk.told()]
    assert found[0] == ("passed on", "r1", None)
    assert found[1][0] == "moved 13"
    assert found[1][1] != "r1"
    assert found[1][2] == "unhandled"


def test_what_cannot_be_shown_is_named(talk: Talk) -> None:
    """Arguments that do not fit and values without a text lose no line and fail no request."""
    talk.send("mumble", "a", "r1")
    talk.advance()
    few, odd, caught = talk.told()
    assert few["event"] == "cannot be shown: TypeError"
    assert (odd["odd"], odd["big"]) == (
        "cannot be shown: LookupError",
        "cannot be shown: OverflowError",
    )
    assert odd["deep"] == {"a": [[1, None]]}
    assert caught["exception"].endswith("KeyError: 'gone'")
    assert [line["request"] for line in (few, odd, caught)] == ["r1", "r1", "mine"]
    assert not any("failed" in line for line in (few, odd, caught))


def test_lines_that_no_encoding_takes_are_told(talk: Talk) -> None:
    """Half of a character, a level of 70 bits and ten megabytes of values fail no request, and take no more than their bound."""
    talk.send("swear", "a", "r1")
    talk.advance()
    text = talk.stream.getvalue()
    bad, named, high, wide = (json.loads(line) for line in text.splitlines())
    assert (bad["event"], bad["half"]) == ("bad \\ud800", "\\udfff")
    assert (named["logger"], named["event"]) == ("tills.\\ud800", "named")
    assert high["event"] == "high"
    assert len(text) < 2 * RUN_BYTES_MAX
    assert wide["value0"] == "x" * 10_000
    assert wide["left out"] == 1_000 - sum(name.startswith("value") for name in wide)
    assert not any("failed" in line for line in (bad, named, high, wide))


def test_many_lines_are_cut_and_the_cut_is_said(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run keeps so many lines and bytes, a task so many bytes, and a line so many characters; the rest is counted."""
    monkeypatch.setattr(held_lines, "LINES_MAX", 10)
    talk.send("babble", "a", "many", 25, 1)
    talk.advance()
    *kept, cut = talk.told()
    assert [line["event"] for line in kept] == [f"{number} x" for number in range(10)]
    assert (cut["level"], cut["request"], cut["lines"]) == ("warning", "many", 15)
    monkeypatch.setattr(held_lines, "LINES_MAX", 1_000)
    talk.send("babble", "a", "long", 40, 20_000)
    talk.advance()
    *kept, cut = talk.told()
    assert {len(line["event"]) for line in kept} == {TEXT_MAX}
    assert len(kept) == RUN_BYTES_MAX // TEXT_MAX
    assert cut["lines"] == 40 - len(kept)
    monkeypatch.setattr(held_lines, "TASK_BYTES_MAX", 1_000)
    for number in range(30):
        talk.send("babble", "a", f"b{number}", 1, 100)
    talk.advance()
    told = talk.told()
    assert 0 < len(told) < 30
    assert ["bytes" in line for line in told] == [False] * (len(told) - 1) + [True]
    talk.send("babble", "a", "next", 1, 1)
    talk.advance()
    assert [line["request"] for line in talk.told()] == ["next"]


def test_outputs_of_the_process_are_left_alone(talk: Talk) -> None:
    """A line that no handler writes is written at once, with the role of the process."""
    logging.getLogger("tills").warning("outside")
    (line,) = talk.told()
    assert (line["event"], line["role"]) == ("outside", "driver")
    assert "request" not in line


def test_a_rerun_writes_nothing(talk: Talk) -> None:
    """What a handler says in a replay, a trace or a what-if was written before; other lines of the process are not dropped."""
    talk.inline.driver._stores.settle()  # a rerun refuses files that anybody writes, and this process has the worker, too
    rerun = Rerun(talking.app, {}, Limits(), b"")
    for method, arguments in (("create", ()), ("babble", (3, 1))):
        body, _ = encoded(talking.app, Call("Till", "a", method, arguments))
        (outcome,) = rerun.run_all([RequestRow(Lsn(0), RequestId("r"), 0, body, None, b"")])
        assert outcome is not None
        assert outcome.error is None
    logging.getLogger("tills").warning("outside")
    assert [line["event"] for line in talk.told()] == ["outside"]
