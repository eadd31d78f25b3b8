"""Events about persons on the driver: readable in no file, gone from the place of the erasure on, and others go on."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import EntityKey
from penstock.cli.main import execute
from penstock.engine.streams.paused_flows import resuming_id
from penstock.engine.streams.system_rows import HELD, PAUSED, WAIT
from penstock.journal.atoms import AtomReader, opened_atom
from penstock.log.api import Entry
from penstock.model.request import encode_continuation
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.differential.committed import state_of
from tests.differential.persons import ADA, Persons
from tests.readable_files import readable_in
from tests.unit.history.visit_app import Visit

VISITORS = "tests.unit.history.visit_app:app"


@pytest.fixture
def persons(tmp_path: Path) -> Persons:
    persons = Persons(tmp_path / "data", VISITORS)
    persons.send("User", "ada", "create", name="Ada Lovelace")
    persons.send("User", "bob", "create", name="Babbage")
    return persons


def visit(persons: Persons, *texts: str) -> None:
    """Append an atom: for each text an event, about Ada if the text has her name, else about Bob."""
    users = {text: "ada" if "Lovelace" in text else "bob" for text in texts}
    persons.publish("visits", *(Visit(persons.user(users[text]), text) for text in texts))


def atoms(persons: Persons, stream: str) -> list[list[Any]]:
    """Return the readable events of each atom of a stream."""
    events = persons.app.stream(stream).events
    with closing(DataDirectory(persons.folder).open_journal(persons.app)) as journal:
        read = AtomReader(journal).atoms(stream, 0)
        return [msgspec.msgpack.decode(opened_atom(events, atom.events)) for atom in read]


def texts(persons: Persons, stream: str) -> list[list[str]]:
    return [[event["text"] for event in atom] for atom in atoms(persons, stream)]


def rows_of(persons: Persons, name: str) -> int:
    return sum(key.startswith(f"{name}/") for key in state_of(persons.runtime.journal))


def diary(persons: Persons, key: str) -> list[str]:
    """Return what a visitor has said, from the state of the task that has visitors as keys."""
    row = state_of(persons.runtime.journal)[EntityKey(f"diaries.Diary/{key}")]
    said: list[str] = persons.app.stored["diaries.Diary"].decode(persons.user(key), row)["said"]
    return said


def begin(persons: Persons) -> None:
    """Append visits: greeted ones, failing ones, some behind a failure, and some whose greeting waits."""
    visit(persons, "hello Lovelace", "hello Babbage")
    visit(persons, "fail Lovelace", "calm Babbage")
    visit(persons, "behind Lovelace", "behind Babbage")
    visit(persons, "rename Babbage", "portal Lovelace", "portal Babbage", "rename Lovelace")
    visit(persons, "other Babbage")
    persons.publish("notes", "good morning")


def resume(persons: Persons) -> None:
    """Let the workflow take the visits again that it holds."""
    record = Entry(resuming_id("careful", 1, skip=False), encode_continuation(), b"", 0)
    persons.runtime.log.append([record])


def test_no_file_has_readable_events(persons: Persons) -> None:
    """Log, atoms, waits, held steps, failed atoms, questions and replies are encrypted."""
    begin(persons)
    persons.runtime.advance(persons.runtime.log.end())  # and not what the handlers append
    assert min(rows_of(persons, name) for name in (WAIT, HELD, PAUSED)) > 0
    assert readable_in(persons.folder, "good morning") != []
    assert readable_in(persons.folder, "Lovelace") == []
    persons.run()
    persons.run()  # what the replies have caused
    assert rows_of(persons, WAIT) == 0
    assert diary(persons, "ada")[:2] == ["hello Lovelace", "fail Lovelace"]
    assert texts(persons, "visits")[0] == ["hello Lovelace", "hello Babbage"]
    (failed,) = atoms(persons, "greeted-failed")[0]
    assert failed["message"] == "ValueError: <personal>"
    inside = [msgspec.msgpack.decode(event)["text"] for event in failed["events"]]
    assert inside == ["fail Lovelace", "calm Babbage"]
    assert readable_in(persons.folder, "Lovelace") == []
    persons.runtime.close()


def test_erased_events_are_left_out_and_others_go_on(
    persons: Persons, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps, waits, held steps, SQL, tail, trace, replay and verification go on with the others."""
    begin(persons)
    order = persons.order(ADA)
    visit(persons, "late Lovelace", "late Babbage")
    persons.runtime.advance(order)
    assert texts(persons, "greetings")[0] == ["hello Lovelace", "hello Babbage"]
    with closing(DataDirectory(persons.folder).open_journal(persons.app)) as journal:
        settings = ViewConfig(memory_mb=256)
        with closing(View(persons.folder, persons.app, journal, settings)) as view:
            view.start()
            query = Query("SELECT text, place FROM streams.visits ORDER BY atom, place")
            assert view.ask(query).table["text"].to_pylist()[:2] == [
                "hello Lovelace",
                "hello Babbage",
            ]
            persons.run()
            resume(persons)
            persons.run()
            rows = view.ask(query).table.to_pylist()
            diaries = view.ask(Query('SELECT key FROM tasks."diaries.Diary"')).table
    assert diaries["key"].to_pylist() == ["bob"]
    assert rows[:2] == [{"text": None, "place": 0}, {"text": "hello Babbage", "place": 1}]
    assert rows[-1] == {"text": "late Babbage", "place": 1}
    assert texts(persons, "visits")[-1] == ["late Babbage"]
    assert [failed["message"] for atom in atoms(persons, "greeted-failed") for failed in atom] == [
        "ValueError: <personal>",
        "AskFailed: <personal>",
    ]
    assert_bob_goes_on(persons)
    persons.runtime.close()
    assert readable_in(persons.folder, "Lovelace") == []
    assert_commands_show_nothing(persons.folder, capsys)


def assert_bob_goes_on(persons: Persons) -> None:
    """The workflows have done for Bob what his visits say, and keep nothing of Ada."""
    assert [text for atom in texts(persons, "guests") for text in atom] == [
        "hello Babbage",
        "calm Babbage",
        "behind Babbage",
        "rename Babbage",
        "portal Babbage",
        "other Babbage",
        "late Babbage",
    ]
    assert rows_of(persons, WAIT) == 0
    assert rows_of(persons, "diaries.Diary") == 1
    assert diary(persons, "bob") == [
        "hello Babbage",
        "calm Babbage",
        "behind Babbage",
        "portal Babbage",
        "other Babbage",
        "late Babbage",
        "rename Babbage",
        "rename Babbage",
    ]
    assert [text for atom in texts(persons, "seen") for text in atom] == [
        "hello Babbage",
        "calm Babbage",
        "behind Babbage",
        "rename Babbage",
        "portal Babbage",
        "other Babbage",
        "late Babbage",
    ]
    assert [text for atom in texts(persons, "greetings") for text in atom] == [
        "hello Babbage",
        "behind Babbage",
        "late Babbage",
        "rename Babbage, formerly Babbage",
        "rename Babbage",
    ]


def assert_commands_show_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the commands that read history; they know the erasure, and show nothing of Ada."""
    for command in (
        ["replay"],
        ["verify"],
        ["trace", "r5"],
        ["tail", "visits", "--no-follow", "--from", "earliest"],
    ):
        assert execute([*command, VISITORS, "--data", str(data)]) == 0, command
    told = capsys.readouterr().out
    assert "concern erased persons" in told
    assert "nothing has to be done" in told
    assert "late Babbage" in told
    assert "Lovelace" not in told
