"""`penstock tail`: the atoms of a stream from the data directory and from a gateway, for people and programs."""

import json
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
import typer
from typer.core import TyperCommand

from penstock.base.ids import Epoch
from penstock.cli import word_completion
from penstock.cli.main import execute
from penstock.cli.options import AppOptions
from penstock.cli.queries.tail_atoms import atoms_at
from penstock.cli.queries.tail_journal import atoms_here
from penstock.cli.remote import RemoteOptions
from penstock.files.layout import LOG
from penstock.journal.api import CompactionPolicy, Journal
from tests.gateway_thread import RunningGateway
from tests.stream_gateway import COUNTING, counting
from tests.stream_journal import publish


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[RunningGateway, httpx.Client, Journal]]:
    """A gateway with twelve atoms of `lines`, and a failed atom."""
    with counting(tmp_path) as opened:
        for epoch in range(12):
            publish(opened[2], {"lines": [[f"line {epoch}"]]})
        yield opened


@pytest.fixture(params=["data", "url"])
def place(
    request: pytest.FixtureRequest, running: tuple[RunningGateway, httpx.Client, Journal]
) -> list[str]:
    """The words that name the data directory, or the gateway."""
    gateway = running[0]
    if request.param == "url":
        return ["--url", gateway.url]
    return [COUNTING, "--data", str(gateway.config.data)]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert execute(["tail", *words, "--no-follow"]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_newest_atoms_are_shown(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without options there are ten lines, each with number, time, epoch and events."""
    lines = shown(capsys, "lines", *place)
    assert len(lines) == 10
    assert lines[-1] == '11  2027-01-15T08:00:00.000011Z  epoch 11  "line 11"'
    assert [line.split()[0] for line in shown(capsys, "lines", *place, "-n", "2")] == ["10", "11"]


def test_programs_get_json(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json` each line is an atom, as the gateway sends it."""
    lines = shown(capsys, "lines", *place, "--from", "10", "--json")
    assert [json.loads(line) for line in lines] == [
        {
            "atom": number,
            "events": [f"line {number}"],
            "time": f"2027-01-15T08:00:00.0000{number}Z",
            "epoch": number,
        }
        for number in (10, 11)
    ]
    assert len(shown(capsys, "lines", *place, "--from", "earliest", "--json")) == 12
    assert shown(capsys, "lines", *place, "--from", "latest") == []
    assert shown(capsys, "doubled", *place) == []


def test_events_are_chosen_by_their_values(
    running: tuple[RunningGateway, httpx.Client, Journal],
    place: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Atoms keep their numbers, lose their other events, and are left out without any; the newest N are of all atoms."""
    sale = {"day": "2027-01-15", "at": "2027-01-15T08:00:00Z"}
    atoms = [["tea", "rye"], ["rye"], ["a=b"], ["tea"]]
    for items in atoms:
        publish(running[2], {"sales": [[{"item": item, **sale} for item in items]]})

    def chosen(*words: str) -> list[tuple[int, list[str]]]:
        lines = [json.loads(line) for line in shown(capsys, "sales", *place, "--json", *words)]
        return [(atom["atom"], [event["item"] for event in atom["events"]]) for atom in lines]

    assert chosen("--where", "item=tea") == [(0, ["tea"]), (3, ["tea"])]
    assert chosen("--where", "item=tea", "-n", "2") == [(3, ["tea"])]
    assert chosen("--where", "item=a=b", "--where", "day=2027-01-15") == [(2, ["a=b"])]
    assert chosen("--where", "item=", "--from", "earliest") == []


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        (["lnes"], "did you mean lines", "request"),
        (["lines", "--from", "13"], "stream lines has 12 atoms", "request"),
        (["lines", "--from", "x"], "write a number, earliest or latest", "config"),
        (["lines", "--from", "1", "-n", "3"], "give one of them", "config"),
        (["sales", "--where", "itm=tea"], "'itm'; did you mean item?", "request"),
        (["sales", "--where", "day=tea"], "stream sales: day: 'tea' is no date", "request"),
        (["lines", "--where", "item=tea"], "the events of lines are str", "request"),
        (["sales", "--where", "limit=3"], "a stream is not filtered by limit", "request"),
        (["sales", "--where", "item"], "--where item: write FIELD=VALUE", "config"),
        (["sales", "--where", "=tea"], "--where =tea: write FIELD=VALUE", "config"),
        (["sales", "--where", "item=a", "--where", "item=b"], "names item twice", "config"),
    ],
)
def test_mistakes_are_named(
    place: list[str],
    words: list[str],
    expected: str,
    code: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistake has its exit code, and a message with the next step."""
    assert execute(["tail", *words, *place, "--no-follow"]) != 0
    error = " ".join(capsys.readouterr().err.split())
    assert expected in error
    assert f"[{code}]" in error


def test_removed_atoms_are_left_out_or_refused(
    running: tuple[RunningGateway, httpx.Client, Journal],
    place: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After retention, the newest atoms begin at the oldest that is held; an older number is refused."""
    journal = running[2]
    journal.compact(CompactionPolicy(newest=0, epochs=3, grace_s=0))
    journal.forget(Epoch(6))
    assert [line.split()[0] for line in shown(capsys, "lines", *place)] == list(
        map(str, range(6, 12))
    )
    assert execute(["tail", "lines", *place, "--from", "2", "--no-follow"]) != 0
    assert "the oldest atom is 6" in " ".join(capsys.readouterr().err.split())


def test_new_atoms_follow(running: tuple[RunningGateway, httpx.Client, Journal]) -> None:
    """Both ways wait for the atoms that are published meanwhile."""
    gateway, _, journal = running
    options = AppOptions(app=[COUNTING], data=gateway.config.data)
    following = [
        atoms_here(options, "lines", "11", {}, follow=True),
        atoms_at(RemoteOptions(url=gateway.url), "lines", "11", {}, follow=True),
    ]
    assert [next(atoms)["atom"] for atoms in following] == [11, 11]
    publishing = threading.Thread(
        target=lambda: [publish(journal, {"lines": [[n]]}) for n in range(5)]
    )
    publishing.start()
    for atoms in following:
        assert [atom["atom"] for atom in islice(atoms, 5)] == list(range(12, 17))
        atoms.close()  # type: ignore[attr-defined]
    publishing.join()


def test_stream_names_are_completed(
    running: tuple[RunningGateway, httpx.Client, Journal],
) -> None:
    """The streams that have atoms are offered."""
    data = running[0].config.data
    assert (data / LOG).exists()
    context = typer.Context(TyperCommand("command"))
    context.params["data"] = str(data)
    assert word_completion.stored_streams(context, [], "li") == ["lines"]
