"""Replay and what-if of streams: an event that would be another one is found, and counted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.log.api import Entry
from tests.differential.inline import Inline

pytestmark = pytest.mark.long

PROGRAM = '''
"""Words are passed on, and counted."""

from penstock import App, Emit, flow, stream

words = stream("words", str)


class Count:
    total: int = 0

    def on_event(self, word: str, out: Emit[str]) -> None:
        self.total += 1
        out(word.upper())


app = App("shouts", flow("shout", words).key(str).task(Count).sink("shouts"))
'''
WORDS = (["a", "b"], ["c"], ["b", "a"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a journal that the program has written, one epoch for each atom."""
    parent = tmp_path_factory.mktemp("replayed")
    (parent / "shouts_then.py").write_text(PROGRAM)
    (parent / "shouts_now.py").write_text(PROGRAM.replace("upper()", 'replace("b", "!")'))
    spec, folder = str(parent / "shouts_then.py"), parent / "data"
    folder.mkdir()
    runtime = Inline(folder, 1, spec, "shouts")
    app = load_app(spec)
    for number, atom in enumerate(WORDS, 1):
        entry = Entry(RequestId(f"r{number}"), app.append("words", atom), b"", 1_000)
        runtime.log.append([entry])
        runtime.advance(number)
    runtime.close()
    return folder


def asked(
    command: str, program: Path, *arguments: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, Any]:
    code = execute([command, str(program), *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code < 2, err
    return code, msgspec.json.decode(out)


@pytest.mark.usefixtures("no_experiments")
def test_changed_event_is_found(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """State and replies are as recorded; the difference is the first event that the code changes."""
    then, now, of = (
        data.parent / "shouts_then.py",
        data.parent / "shouts_now.py",
        ("--data", str(data)),
    )
    code, replayed = asked("replay", then, *of, capsys=capsys)
    assert (code, replayed["divergence"]) == (0, None)
    code, replayed = asked("replay", now, *of, capsys=capsys)
    first = replayed["divergence"]
    assert (code, first["request_id"], first["epoch"]) == (1, "r1", 0)
    assert first["findings"] == [
        {"place": "atom 0 of stream shouts", "attribute": f"event {at}", "recorded": was, "replayed": now}
        for at, was, now in ((0, "A", "a"), (1, "B", "!"))
    ]  # fmt: skip
    assert first["verdict"]["causes"] == ["code"]
    code, replayed = asked("replay", now, *of, "--from", "1", "--to", "1", capsys=capsys)
    assert replayed["divergence"]["request_id"] == "r2"


def test_what_if_counts_atoms(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The atoms of a stream that would be others are counted, those of a removed append, too."""
    then, of = data.parent / "shouts_then.py", ("--data", str(data))
    assert asked("what-if", then, *of, capsys=capsys)[1]["atoms"] == {}
    code = ("--code", str(data.parent / "shouts_now.py"))
    assert asked("what-if", then, *of, *code, capsys=capsys)[1]["atoms"] == {"shouts": 3}
    without = ("--without", "r2")
    assert asked("what-if", then, *of, *without, capsys=capsys)[1]["atoms"] == {
        "words": 1,
        "shouts": 1,
    }
    assert execute(["what-if", str(then), *of, *without]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 entity, 2 atoms differ; the rest, 2 requests, is the same\n")
    assert "stream shouts: 1 atom differs\n" in out


@pytest.mark.usefixtures("no_experiments")
def test_kept_outcome_has_its_atoms(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that what-if keeps has the atoms of the outcome, so its replay finds no difference."""
    then, kept = data.parent / "shouts_then.py", tmp_path / "kept"
    arguments = ("--data", str(data), "--without", "r1", "--keep", str(kept))
    asked("what-if", then, *arguments, capsys=capsys)
    code, replayed = asked("replay", then, "--data", str(kept), capsys=capsys)
    assert (code, replayed["divergence"]) == (0, None)
    code, replayed = asked(
        "replay", data.parent / "shouts_now.py", "--data", str(kept), capsys=capsys
    )
    assert replayed["divergence"]["findings"][0]["place"] == "atom 0 of stream shouts"
