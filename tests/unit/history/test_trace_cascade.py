"""Traces of cascades: the tree has all results of a record, and it names the differences from the journal."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.engine.streams.cascade import LaterRecord, PublishedAtom
from penstock.engine.streams.recorded_cascade import RecordedAtom
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.trace import trace
from penstock.log.api import Entry
from tests.differential.cascade_app import Account, app, body_of
from tests.differential.inline import Inline

SPEC = "tests.differential.cascade_app:app"
BODIES = [
    ("open", app.request("Account", "a", "create", (), {})[0]),
    ("other", app.request("Account", "b", "create", (), {})[0]),
    ("move", body_of("move", "a", Account("b"), 3)),
    ("pass", body_of("pass_on", "a", Account("b"), 1)),
    ("append", app.append("numbers", [6, 1])),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a journal of these records, and of all records that they append."""
    folder = tmp_path_factory.mktemp("cascades") / "data"
    folder.mkdir()
    runtime = Inline(folder, 1, SPEC, app.name)
    runtime.log.append([Entry(RequestId(name), body, b"", 1_000) for name, body in BODIES])
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    runtime.close()
    return folder


def traced(data: Path, request_id: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert execute(["trace", request_id, SPEC, "--data", str(data), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def atoms_of(part: Any) -> list[Sequence[Any]]:
    return [(atom["stream"], atom["atom"], atom["events"]) for atom in part["atoms"]]


def test_trace_of_a_call_has_its_cascade(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The atom of a request, and the workflow step that takes it, with the numbers of the journal."""
    found = traced(data, "move", capsys)
    cascade = found["cascade"]
    assert found["as_recorded"]
    assert cascade["differences"] == []
    assert atoms_of(cascade) == [("moved", 0, ['["a",-3]', '["b",3]'])]
    [step] = cascade["steps"]
    assert (step["step_id"], step["parent"], step["consumer"]) == ("move~~s1", 0, "totals")
    assert (step["takes"], step["source"], step["count"]) == ("events", "moved", 2)
    assert atoms_of(step) == [("totals", 0, ["-2999", "3002"])]
    names = {one["entity"] for one in found["entities"]}
    assert {"Account", "totals.Total"} <= names
    assert not any(name.startswith("$") for name in names)


def test_trace_has_sent_requests(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The requests that a handler has sent, with their outcomes."""
    cascade = traced(data, "pass", capsys)["cascade"]
    assert [(one["request_id"], one["call"]) for one in cascade["sent"]] == [
        ("pass~~1", "Account/b.pass_on('a', 0)"),
        ("pass~~2", "Account/a.add(1)"),
    ]
    assert cascade["sent"][1]["reply"] == {"value": 7}
    assert [atom["stream"] for atom in cascade["atoms"]] == ["numbers", "numbers"]


def test_trace_of_an_append_has_questions_and_later_records(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step names the step before it, its questions and answers, and the outcomes of later records."""
    found = traced(data, "append", capsys)
    assert (found["root"], found["as_recorded"]) == (None, True)
    steps = found["cascade"]["steps"]
    asking = next(step for step in steps if step["consumer"] == "asking")
    assert [(one["to"], one["text"]) for one in asking["questions"]] == [
        ("stock", "6"),
        ("stock", "1"),
    ]
    answering = next(step for step in steps if step["takes"] == "questions")
    assert (answering["parent"], answering["consumer"]) == (asking["number"], "portal stock")
    assert len(answering["answers"]) == 2
    back = next(step for step in steps if step["takes"] == "answers")
    assert (back["parent"], back["consumer"]) == (answering["number"], "asking")
    later = [record for step in steps for record in step["later"]]
    assert later
    assert all(record["epoch"] > found["epoch"] for record in later if not record["delay_us"])


@pytest.mark.parametrize(
    ("part", "record"),
    [("pass~~1", "pass"), ("move~~s1", "move"), ("append~~s2.0", "append"), ("move", "move")],
)
def test_a_part_of_a_cascade_shows_its_record(
    data: Path, part: str, record: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The id of a sent request, of a step and of a question lead to their record."""
    assert traced(data, part, capsys)["request_id"] == record


def test_every_record_is_as_recorded(data: Path) -> None:
    """Each record of the journal, also a later one, causes again what the journal has."""
    with HistoryReader(data, load_app(SPEC)) as history:
        epochs = history.epochs(Epoch(0), history.last)
        names = [row.request_id for recorded in epochs for row in recorded.rows]
        assert len(names) > len(BODIES)
        for name in names:
            document = trace(history, CodeVersions(history, load_app(SPEC), SPEC), name, Limits())
            assert document.as_recorded, name


def test_differences_from_the_journal_are_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another event, a missing atom, a missing sent request, and a further later record."""
    with HistoryReader(data, load_app(SPEC)) as history:
        recorded = history.epoch(history.find("pass"))
        row = next(row for row in recorded.rows if row.request_id == "pass")
        cascade = recorded.cascade(row)
        number, first = cascade.atoms[0]
        other = PublishedAtom(first.stream, first.step, (b"\x07", *first.events[1:]))
        wrong = replace(
            cascade,
            atoms=[RecordedAtom(number, other), *cascade.atoms[1:-1]],
            sent=cascade.sent[:1],
            later=[*cascade.later, LaterRecord(RequestId("pass~~9"), b"", 0)],
        )
        changed = replace(recorded, cascades={**recorded.cascades, row.lsn: wrong})
        whole = history.epoch
        monkeypatch.setattr(
            history, "epoch", lambda n: changed if n == recorded.epoch else whole(n)
        )
        document = trace(history, CodeVersions(history, load_app(SPEC), SPEC), "pass", Limits())
    assert not document.as_recorded
    assert document.cascade is not None
    last = cascade.atoms[-1].atom.stream
    found = [(one.place, one.part, one.recorded is None) for one in document.cascade.differences]
    assert found == [
        (f"atom {number} of stream {first.stream}", "event 0", False),
        (f"a further atom of stream {last}", "atom", True),
        ("sent request pass~~2", "request", True),
        ("later record pass~~9", "record", False),
    ]


def test_text_is_a_tree(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text names each part of the cascade; ids are whole."""
    assert execute(["trace", "pass", SPEC, "--data", str(data)]) == 0
    shown = capsys.readouterr().out
    for part in ("sent pass~~1", "atom numbers", "step pass~~s1", "asked stock", "later pass~~"):
        assert part in shown
