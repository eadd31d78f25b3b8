"""Erasures on the driver: a person is gone from all files at its place in the order, also after a crash."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.cli.main import execute
from penstock.client.synchronous import Client
from penstock.client.synchronous_pipeline import Pipelined
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, Erased, RequestError
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.files.sealed import seal
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.history.verification import Finding, Remedy
from penstock.log.api import Record
from penstock.model.call import Call
from penstock.model.control import Erase, encode_control
from penstock.orders.erasure_order import request_erasure
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures, subject_named
from penstock.runtime.local.runtime import LocalRuntime
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.differential.committed import state_of
from tests.differential.inline import Inline
from tests.differential.persons import ADA, BOB, PERSONS, Persons
from tests.gateway_thread import RunningGateway
from tests.readable_files import readable_in


@pytest.fixture
def persons(tmp_path: Path) -> Persons:
    return Persons(tmp_path / "data")


def test_erased_person_is_gone_from_its_place_on(persons: Persons) -> None:
    """Later requests do not find the person, requests that were encrypted before fail, and others go on."""
    persons.begin()
    order = persons.order(ADA)
    persons.append("User", "ada", "rename", "Late Lovelace")
    persons.append("User", "bob", "rename", "Charles")
    assert persons.run().value() == "Babbage"
    certificate = persons.reply(order).value(Certificate)
    assert (certificate.subject, certificate.epoch) == (ADA, 6)
    assert certificate == certificate.sealed()
    assert persons.certificates() == [certificate]
    assert not certificate.counts(certificate.journal, Epoch(5))
    with pytest.raises(Erased):
        persons.reply(Lsn(order + 1)).value()
    assert sorted(state_of(persons.runtime.journal)) == ["Page/home", BOB]
    assert persons.reply(Lsn(3)).value() == "<erased>"
    assert persons.reply(Lsn(5)).value() == "hello Babbage"
    assert (
        persons.send("Page", "home", "visit", persons.user("ada"), "hi").error == "no-such-entity"
    )
    persons.runtime.close()


def test_oracle_deletes_an_erased_person() -> None:
    """A local runtime that replays a log has the entities that the driver has."""
    app = load_app(PERSONS)
    app.keys = None  # of a data directory
    runtime = LocalRuntime(app)
    for name in ("ada", "bob"):
        runtime.submit(Call("User", name, "create", (), {"name": name}))
    body = encode_control(Erase(ADA, 0))
    runtime.replay([Record(Lsn(2), RequestId("erase"), body, 0)])
    assert sorted(runtime.state) == [BOB]


def test_erased_name_may_begin_again(persons: Persons) -> None:
    """Another person with the same key has data of its own, and may be erased, too."""
    persons.begin()
    persons.order(ADA)
    persons.run()
    persons.send("User", "ada", "create", name="another Ada")
    assert persons.send("User", "ada", "rename", "Ada").value() == "another Ada"
    again = persons.order(ADA, 1)
    assert persons.run().value(Certificate).generation == 1
    assert [each.generation for each in persons.certificates()] == [0, 1]
    assert persons.order(ADA, 1) == again
    with pytest.raises(RequestError, match="not a personal class"):
        subject_named(persons.app, "Page/home")
    with pytest.raises(RequestError, match="personal class 'Usr'"):
        subject_named(persons.app, "Usr/ada")
    persons.runtime.close()


def test_nothing_reads_an_erased_person(
    persons: Persons, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file shows it, the view forgets it, and replay and verification go on."""
    persons.begin()
    data, app = persons.folder, persons.app
    with closing(DataDirectory(data).open_journal(app)) as journal:
        snapshots = Snapshots(data / "snapshots", journal.identity)
        write_next_snapshot(app, journal, snapshots, Epoch(4))
        with closing(View(data, app, journal, ViewConfig(memory_mb=256))) as view:
            view.start()
            before = "SELECT name FROM User AS OF EPOCH 5 ORDER BY ALL"
            assert view.ask(Query(before)).table["name"].to_pylist() == [
                "Babbage",
                "Countess Lovelace",
            ]
            persons.order(ADA)
            persons.run()
            for query in (before, "SELECT name FROM User", "SELECT value FROM replies"):
                texts = str(view.ask(Query(query)).table.to_pylist())
                assert "Babbage" in texts
                assert "Lovelace" not in texts
    persons.runtime.close()
    assert readable_in(tmp_path, "Lovelace") == []
    for command in (
        ["replay"],
        ["verify"],
        ["trace", "r4"],
        ["history", "User", "ada"],
        ["erase", "--list"],
    ):
        assert execute([*command, PERSONS, "--data", str(data)]) == 0
    told = capsys.readouterr().out
    for text in (
        "3 epochs concern erased persons",
        "nothing has to be done",
        "<erased>",
        "User/ada",
    ):
        assert text in told
    assert "Lovelace" not in told


def test_history_says_what_cannot_be_shown(
    persons: Persons, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change by a request about an erased person is counted, and so is one beside it whose values depend on it."""
    persons.begin()
    for name in ("ada", "bob"):  # in one epoch
        persons.append("Page", "home", "visit", persons.user(name), "again")
    persons.run()
    persons.order(ADA)
    persons.run()
    persons.send("Page", "home", "visit", persons.user("bob"), "late")
    persons.runtime.close()
    shown: dict[str, tuple[list[list[int]], int]] = {}
    for words in (("Page", "home"), ("User", "bob"), ("User", "ada")):
        command = ["history", *words, PERSONS, "--data", str(persons.folder)]
        assert execute(command) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert execute([*command, "--json"]) == 0
        made = msgspec.json.decode(capsys.readouterr().out)
        counts = [
            [part["before"], part["after"]]
            for change in made["changes"]
            for part in change["attributes"]
            if part["name"] == "visits"
        ]
        shown["/".join(words)] = counts, made["erased"]
        assert ("requests about erased persons" in told) == (made["erased"] > 0)
    assert shown == {
        "Page/home": ([[None, 0], [1, 2], [4, 5]], 2),
        "User/bob": ([[None, 0], [0, 1], [1, 2], [2, 3]], 0),
        "User/ada": ([], 5),
    }


def test_backup_of_the_time_before_shows_nothing(persons: Persons, tmp_path: Path) -> None:
    """A restored directory with the present keys has the other persons, and not the erased one."""
    persons.begin()
    data, app = persons.folder, persons.app
    Backups(tmp_path / "backups").make(data, "persons")
    persons.order(ADA)
    persons.run()
    persons.runtime.close()
    assert readable_in(tmp_path, "Lovelace") == []
    restore(tmp_path / "backups", tmp_path / "restored", None)
    shutil.copy(data / SUBJECT_KEYS, tmp_path / "restored")
    with closing(DataDirectory(tmp_path / "restored").open_journal(app)) as journal:
        with pytest.raises(Erased):
            app.entities["User"].decode("ada", state_of(journal)[ADA])
        assert app.entities["User"].decode("bob", state_of(journal)[BOB])["name"] == "Babbage"


@pytest.mark.parametrize("epoch", [None, 4, "fork"])
def test_older_keys_bring_nobody_back(
    persons: Persons, tmp_path: Path, epoch: int | str | None
) -> None:
    """Beside a backup or a fork from after the erasure, keys from before it are destroyed; also for an earlier epoch."""
    persons.begin()
    data, copy = persons.folder, tmp_path / "copy"
    older = (data / SUBJECT_KEYS).read_bytes()
    persons.order(ADA)
    persons.run()
    (made,) = persons.certificates()
    stored = msgspec.structs.replace(made, epoch=Epoch(99), subject="User/bob")
    Erasures(data).record(stored)  # as of a driver that died before its commit
    if epoch == "fork":
        fork(data, "persons", copy, None)
    else:
        Backups(tmp_path / "backups").make(data, "persons")
        restore(tmp_path / "backups", copy, Epoch(4) if epoch == 4 else None)
    persons.runtime.close()
    (copy / SUBJECT_KEYS).write_bytes(older)
    with closing(DataDirectory(copy).open_journal(persons.app)) as journal:
        identity, users = journal.identity, persons.app.entities["User"]
        assert (ADA in state_of(journal)) == (epoch == 4)
        assert users.decode("bob", state_of(journal)[BOB])["name"] == "Babbage"
    assert Erasures(copy).every(identity, Epoch(99)) == [made]
    assert Erasures(copy).generation(ADA) == 1
    assert (copy / SUBJECT_KEYS).read_bytes() != older


def verified(
    data: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, list[Finding]]:
    code = execute(["verify", PERSONS, "--data", str(data), "--json", *more])
    report = msgspec.json.decode(capsys.readouterr().out)
    return code, msgspec.convert(report["findings"], list[Finding])


def erased_once(persons: Persons) -> Path:
    persons.begin()
    persons.order(ADA)
    persons.run()
    persons.runtime.close()
    return persons.folder


@pytest.mark.parametrize("damage", ["removed", "emptied", "torn"])
def test_lost_certificate_is_noticed_and_written_again(
    persons: Persons, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Without it an older copy of the keys brings the person back; the journal has it."""
    data = erased_once(persons)
    path = data / ERASURES
    content = path.read_bytes()
    assert verified(data, capsys) == (0, [])
    if damage == "emptied":
        path.write_bytes(seal("erasures", []))
    elif damage == "torn":
        path.write_bytes(content[:-40])
        code, (found,) = verified(data, capsys)
        assert (code, found.where, found.remedy) == (1, ERASURES, Remedy.BACKUP)
        assert "--repair adds" in found.how
        path.unlink()
    else:
        path.unlink()
    code, (found,) = verified(data, capsys)
    assert (code, found.where, found.remedy) == (1, ERASURES, Remedy.REBUILD)
    assert "older copy of subjects.keys brings the persons back" in found.how
    assert verified(data, capsys, "--repair")[0] == 0
    assert verified(data, capsys) == (0, [])
    assert path.read_bytes() == content


@pytest.mark.parametrize("command", ["verify", "erase"])
def test_damaged_keys_come_from_no_backup(
    persons: Persons, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The advice says whose copy is needed, and what keeps erased persons erased; so does an older copy in fact."""
    persons.begin()
    older = (persons.folder / SUBJECT_KEYS).read_bytes()
    persons.order(ADA)
    persons.run()
    persons.runtime.close()
    data = persons.folder
    (data / SUBJECT_KEYS).write_bytes(older[:-30])
    if command == "verify":
        code, (found,) = verified(data, capsys)
        assert (code, found.where, found.remedy) == (1, SUBJECT_KEYS, Remedy.BACKUP)
        told = found.how
    else:
        assert execute(["erase", BOB, PERSONS, "--data", str(data), "--yes"]) == 1
        told = capsys.readouterr().err
    assert "no backup contains it" in told
    assert f"keep {ERASURES}" in told
    assert "restore" not in told
    (data / SUBJECT_KEYS).write_bytes(older)
    assert verified(data, capsys) == (0, [])
    assert Erasures(data).generation(ADA) == 1


def test_erasure_of_a_directory_without_a_journal_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as damage, and nothing is created."""
    assert execute(["erase", ADA, PERSONS, "--data", str(tmp_path / "none"), "--yes"]) == 2
    assert "there is no journal in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_requests_of_handlers_are_encrypted(persons: Persons) -> None:
    """A request that a handler sends about a person, at once or for later, is readable in no file."""
    persons.begin()
    persons.send("Page", "home", "invite", persons.user("ada"), "welcome Lovelace")
    persons.run()
    page = persons.app.entities["Page"].decode(
        "home", state_of(persons.runtime.journal)[EntityKey("Page/home")]
    )
    assert page["visits"] == 3
    assert len(persons.runtime.log.upcoming(10)) == 1
    persons.runtime.close()
    assert readable_in(persons.folder, "invite") != []
    assert readable_in(persons.folder, "Lovelace") == []


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application have no keys yet, as in a process that begins."""
    app = load_app(PERSONS)
    for holder in (app, *app.stored.values()):
        monkeypatch.setattr(holder, "keys", None)


def erased_files(data: Path) -> Sequence[Path]:
    """Erase Ada on the driver, and return the files that show her name; the search finds readable texts."""
    runtime = Inline(data, 2, spec=PERSONS, name="persons")
    runtime.advance(runtime.log.end())
    request_erasure(runtime.log, ADA, 0)
    runtime.advance(runtime.log.end())
    assert sorted(state_of(runtime.journal)) == ["Page/home"]
    runtime.close()
    assert Erasures(data).generation(ADA) == 1
    assert readable_in(data, "good morning") != []
    return readable_in(data, "Lovelace")


@pytest.mark.usefixtures("no_keys")
def test_commands_encrypt_the_arguments_of_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first command on a new directory has drawn the keys before it encodes the request."""
    data = tmp_path / "data"
    for words in (
        ("User", "ada", "create", "name=Ada Lovelace"),
        ("User", "ada", "rename", "Countess Lovelace"),
        ("Page", "home", "create"),
        ("Page", "home", "visit", "ada", "hello Lovelace"),
        ("Page", "home", "greet", "good morning"),
    ):
        command = ["call", *words, "--app", PERSONS, "--data", str(data), "--timeout", "0"]
        assert execute(command) != 0
        assert "the request is durable" in capsys.readouterr().err, words
    assert readable_in(data, "Lovelace") == []
    assert erased_files(data) == []


@pytest.mark.usefixtures("no_keys")
def test_gateway_encrypts_the_arguments_of_requests(tmp_path: Path) -> None:
    """Clients send readable arguments, with and without the application, over HTTP and in a pipeline."""
    data = tmp_path / "data"
    with RunningGateway(PERSONS, data) as gateway:
        app = load_app(PERSONS)
        with Client(gateway.url) as plain:
            plain.call.User.create("ada", name="Ada Lovelace")
            assert plain.call.User("ada").rename("Countess Lovelace") == "Ada Lovelace"
        with Client(gateway.url, app=app) as typed:
            typed.call.Page.create("home")
            typed.call.Page("home").greet("good morning")
            user = app.entities["User"].cls("ada")
            greeting = typed.call.Page("home").visit(user, "hello Lovelace")
            assert greeting == "hello Lovelace Countess Lovelace"
            with typed.pipeline() as pipeline:
                renamed: Pipelined[str] = pipeline.send(
                    Call("User", "ada", "rename", ("Lady Lovelace",))
                )
                assert renamed.result(60) == "Countess Lovelace"
    assert readable_in(data, "Lovelace") == []
    assert erased_files(data) == []


@pytest.mark.usefixtures("no_keys")
def test_request_without_keys_is_refused() -> None:
    """A process that has not opened the data directory cannot encode a request about a person."""
    app = load_app(PERSONS)
    with pytest.raises(ConfigError, match="User/ada"):
        app.request("User", "ada", "rename", ("Ada Lovelace",))
    assert b"good morning" in app.request("Page", "home", "greet", ("good morning",))[0]


def test_trace_names_no_other_request_in_place_of_an_erased_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request that changed an entity next concerned an erased person: only its epoch is known, in any epoch."""
    for folder, is_later in (("same", False), ("later", True)):
        persons = Persons(tmp_path / folder)
        persons.send("User", "ada", "create", name="Ada Lovelace")
        persons.send("User", "bob", "create", name="Babbage")
        persons.append("Page", "home", "create")
        if is_later:
            persons.run()
        persons.append("Page", "home", "visit", persons.user("ada"), "hello")
        persons.append("Page", "home", "visit", persons.user("bob"), "hello")
        persons.run()
        persons.order(ADA)
        persons.run()
        persons.runtime.close()
        capsys.readouterr()
        words = ["trace", "r3", PERSONS, "--data", str(tmp_path / folder), "--json"]
        assert execute(words) == 0
        (entity,) = msgspec.json.decode(capsys.readouterr().out)["entities"]
        assert entity["next"] == {"request_id": None, "call": None, "epoch": 2 + is_later}
