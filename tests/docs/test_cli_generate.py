"""`penstock generate`: generators append through a gateway, each atom once, and say why they have failed."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from penstock import Client, Forbidden
from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.model.request import append_events, decode_request
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from tests.differential.inline import Inline
from tests.docs.conftest import Run
from tests.gateway_thread import RunningGateway
from tests.unit.cli.sources_app import app, numbers

SPEC = "tests.unit.cli.sources_app:app"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway(SPEC, tmp_path / "data", reads=False) as running:
        yield running


def appended(gateway: RunningGateway) -> list[tuple[str, list[bytes]]]:
    """Return the ids and the events of all appends."""
    assert gateway.driver is not None, "it drives"
    log = gateway.driver.log
    records = log.read(Lsn(0), log.wait(Lsn(0), 0))
    return [(one.request_id, append_events(decode_request(one.body))) for one in records]


def test_each_atom_is_appended_once(penstock: Run, gateway: RunningGateway, tmp_path: Path) -> None:
    """A second start goes on behind the atoms that are there, and a file that was wrong is read again."""
    (tmp_path / "measures.csv").write_text("celsius\n20.5\nwarm\n")
    words = ("generate", SPEC, "--url", gateway.url, "--data", str(gateway.config.data))
    code, out, err = penstock(*words, "--json")
    assert code == 1, err
    counting, measures = json.loads(out)
    assert counting == {
        "generator": "counting",
        "stream": "numbers",
        "status": "finished",
        "atoms": 5,
        "events": 9,
        "place": "",
        "share": None,
        "reason": "",
    }
    assert measures["status"] == "failed"
    assert measures["reason"].startswith(
        "generator measures, atom 0: measures.csv, line 3: Expected `float`"
    )
    (tmp_path / "measures.csv").write_text("celsius\n20.5\n21\n")
    code, out, err = penstock(*words)
    assert code == 0, err
    assert "measures.csv, line 3 (100%)" in out
    atoms = dict(appended(gateway))
    expected = [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    names = [f"sources/counting/{number}" for number in range(5)]
    assert list(atoms) == [*names, "sources/measures/0"]
    decode = numbers.events.decode
    assert [[decode(data) for data in atoms[name]] for name in names] == expected


def test_progress_is_shown_elsewhere(
    penstock: Run, gateway: RunningGateway, tmp_path: Path
) -> None:
    """With a data directory, `penstock status` shows the end of each generator."""
    (tmp_path / "measures.csv").write_text("celsius\nwarm\n")
    data = ("--data", str(tmp_path / "data"))
    with presence.present(tmp_path / "data", "gateway", SPEC, url=gateway.url):
        code, _, err = penstock("generate", SPEC, *data)
        assert code == 1, err
        code, out, _ = penstock("status", *data, "--json")
    counting, measures = json.loads(out)["generators"]
    assert (counting["status"], counting["atoms"]) == ("finished", 5)
    assert (measures["status"], measures["place"]) == ("failed", "measures.csv, line 2")
    code, out, _ = penstock("status", *data)
    assert "generator counting: finished, 5 atoms on numbers" in out


def test_one_generator_can_be_chosen(penstock: Run, gateway: RunningGateway) -> None:
    """With `--only`, the others do not run."""
    place = ("--url", gateway.url, "--data", str(gateway.config.data))
    code, out, err = penstock("generate", SPEC, *place, "--only", "counting", "--json")
    assert code == 0, err
    assert [state["generator"] for state in json.loads(out)] == ["counting"]
    assert len(appended(gateway)) == 5


def test_generator_goes_on_after_its_ids_are_forgotten(
    penstock: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has forgotten the ids of the first atoms; the state knows how many there are, so none is repeated."""
    data = tmp_path / "data"
    data.mkdir()
    runtime = Inline(data, 1, SPEC, "sources")
    for number, atom in enumerate([[0, 1], [2, 3], [4, 5]]):
        entry = Entry(RequestId(f"sources/counting/{number}"), app.append("numbers", atom), b"", 1)
        runtime.log.append([entry])
    runtime.advance(3)
    runtime.close()
    weeks_later_s = int(time.time()) + 21 * 86_400
    monkeypatch.setattr(SqliteLog, "_now_s", lambda _: weeks_later_s)
    with RunningGateway(SPEC, data, drives=False, reads=False) as gateway:
        place = ("--url", gateway.url, "--data", str(data))
        code, out, err = penstock("generate", SPEC, *place, "--only", "counting", "--json")
        assert code == 0, err
        assert json.loads(out)[0]["atoms"] == 5
        response = httpx.get(f"{gateway.url}/requests/sources%2Fcounting%2F0")
        assert (response.status_code, response.json()["error"]["code"]) == (410, "gone")
        assert httpx.get(f"{gateway.url}/requests/sources%2Fcounting%2F7").status_code == 404
    with closing(DataDirectory(data).open_log()) as log:
        ids = [record.request_id for record in log.read(log.start(), log.end())]
    assert ids == [f"sources/counting/{number}" for number in range(5)]


def test_no_caller_moves_a_generator(
    penstock: Run, gateway: RunningGateway, tmp_path: Path
) -> None:
    """Without keys, only who has the data directory can use an id of a generator; other ids are free."""
    path, stolen = "/send/streams/numbers", "sources/counting/0"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        headers |= {"Idempotency-Key": stolen}
        refused = httpx.post(f"{gateway.url}{path}", json=[7], headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    with Client(gateway.url, app) as client:
        with pytest.raises(Forbidden, match="belongs to generator counting"):
            client.bulk([client.prepare.append(numbers, [7], request_id=stolen)])
        assert client.append(numbers, [7], request_id="sources/orders/0") == 1
    place = ("generate", SPEC, "--url", gateway.url, "--only", "counting", "--json", "--data")
    code, out, _ = penstock(*place, str(tmp_path / "elsewhere"))
    assert code == 1
    assert "with the data directory" in json.loads(out)[0]["reason"]
    code, out, err = penstock(*place, str(gateway.config.data))
    assert code == 0, err
    assert [name for name, _ in appended(gateway)] == [
        "sources/orders/0",
        *(f"sources/counting/{number}" for number in range(5)),
    ]


@pytest.mark.parametrize("words", [(), ("--data", "own")])
def test_key_of_a_directory_goes_to_its_own_gateway(
    penstock: Run,
    gateway: RunningGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """A URL on the command line gets the key of a data directory only if the command line names that, too."""
    monkeypatch.chdir(tmp_path)
    own = tmp_path / ".penstock" / app.name
    own.parent.mkdir()
    own.symlink_to(gateway.config.data)  # where a command looks without --data
    (tmp_path / "own").symlink_to(gateway.config.data)
    code, _, err = penstock("generate", SPEC, "--url", gateway.url, *words, "--only", "counting")
    assert (code == 0) == bool(words), err
    assert len(appended(gateway)) == (5 if words else 0)


def test_mistakes_of_the_command_line(penstock: Run, tmp_path: Path) -> None:
    """A wrong name and a missing gateway are refused before anything is appended."""
    data = ("--data", str(tmp_path / "data"))
    code, _, err = penstock("generate", SPEC, "--only", "count", *data)
    assert code == 2
    assert "has no generator count; its generators: counting, measures" in " ".join(err.split())
    code, _, err = penstock("generate", SPEC, *data)
    assert code == 2
    assert "start it with penstock run" in " ".join(err.split())
