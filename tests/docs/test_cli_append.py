"""`penstock append`: the forms of events, their refusals, and the two ways to an application."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process.config import Config
from tests.docs.conftest import Run
from tests.gateway_thread import RunningGateway
from tests.serial_driver import SerialDriver

SPEC = "tests.unit.gateway.newsstand_app:app"


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose requests are processed."""
    data = tmp_path / "data"
    driver = SerialDriver(SPEC, Config(data=data))
    driver.start()
    yield data
    driver.stop()


def test_words_are_events(penstock: Run, stand: Path) -> None:
    """An event is bare text or JSON, and the command says how many events were appended."""
    words = ("append", SPEC, "headlines", "the quick fox", '"the dog"', "-5")
    code, out, err = penstock(*words, "--data", str(stand), "--request-id", "a")
    assert (code, out) == (
        0,
        "Appended 3 events to stream headlines, as one atom with the id a.\n",
    ), err
    again = penstock(*words, "--data", str(stand), "--request-id", "a", "--json")
    assert json.loads(again[1]) == {"stream": "headlines", "events": 3, "request_id": "a"}
    other = ("append", SPEC, "headlines", "another", "--data", str(stand), "--request-id", "a")
    assert penstock(*other)[0] == 2


def test_lines_of_a_file_and_of_standard_input(
    penstock: Run, stand: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line that is not blank is an event, and all lines are one atom."""
    lines = '{"title": "Sun"}\n\n{"title": "Moon", "copies": 3}\n'
    (tmp_path / "sales.jsonl").write_text(lines)
    where = ("--data", str(stand), "--json")
    _, out, err = penstock("append", SPEC, "sales", "--file", "sales.jsonl", *where)
    assert json.loads(out)["events"] == 2, err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    _, out, err = penstock("append", SPEC, "sales", "-", *where)
    assert json.loads(out)["events"] == 2, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("headline", "a"), "did you mean headlines?"),
        (("words", "a"), "stream words takes no appends"),
        (("sales", '{"title": 5}'), "stream sales: events[0].title: Expected `str`, got `int`"),
        (("sales", "Sun"), "stream sales: events[0]:"),
        (("sales",), "give the events in one place"),
        (("sales", "{}", "--file", "x"), "give the events in one place"),
        (("sales", "--file", "absent"), "--file absent: No such file or directory"),
        (("sales", "--file", "wrong"), "stream sales: line 2: events[1].copies: Expected `int`"),
    ],
)
def test_wrong_appends_are_refused(
    penstock: Run, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """The message names the mistake, the exit code is 2, and nothing is appended."""
    (tmp_path / "wrong").write_text('{"title": "Sun"}\n{"title": "Sun", "copies": []}')
    code, out, err = penstock("append", SPEC, *words, "--data", str(tmp_path / "data"))
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "data").exists()


def test_append_through_a_gateway(penstock: Run, tmp_path: Path) -> None:
    """With `--url`, the application is not needed: the gateway checks the events."""
    with RunningGateway(SPEC, tmp_path / "data", reads=False) as gateway:
        where = ("--url", gateway.url)
        _, out, err = penstock("append", "headlines", "a", "b", *where, "--request-id", "x")
        assert out == "Appended 2 events to stream headlines, as one atom with the id x.\n", err
        _, out, err = penstock("append", SPEC, "sales", '{"title": "Sun"}', *where)
        assert out.startswith("Appended 1 event to stream sales"), err
        code, _, err = penstock("append", "sales", '{"title": 5}', *where)
        assert code == 2
        assert "events[0].title: Expected `str`, got `int`" in " ".join(err.split())
