"""Workflows that are paused by a failure: `penstock flow` and the console show them and resume them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.log.api import Entry
from penstock.model.call import append_of, encoded
from tests.differential.committed import streams_of
from tests.differential.inline import Inline
from tests.differential.pausing_app import FORBIDDEN, SPEC, app, numbers
from tests.gateway_thread import RunningGateway

FLOW = "/flow"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Inline]:
    """The workflow `total` has failed at its second atom, and holds a third one."""
    FORBIDDEN.clear()
    FORBIDDEN.add(0)
    (tmp_path / "data").mkdir()
    driver = Inline(tmp_path / "data", 1, SPEC, app.name)
    for number in (1, 0, 2):
        body, hint = encoded(app, append_of(numbers, [number]))
        driver.log.append([Entry(RequestId(f"n{number}"), body, hint, number)])
    driver.advance(int(driver.log.end()))
    yield driver
    driver.close()


@pytest.fixture
def run(driver: Inline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a `flow` command; return its exit code, and its output with single spaces."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")

    def flow(command: str, *words: str) -> tuple[int, str, str]:
        code = execute(["flow", command, SPEC, *words, "--data", str(driver.config.data)])
        printed = capsys.readouterr()
        return code, " ".join(printed.out.split()), " ".join(printed.err.split())

    return flow


def published(driver: Inline, stream: str) -> int:
    """Process the log, and return the number of atoms of a stream."""
    driver.advance(int(driver.log.end()))
    return len(streams_of(driver.journal).get(stream, ()))


def test_commands_show_and_resume(run: Run, driver: Inline) -> None:
    """The failed atom fails again and the workflow pauses again; then `--skip` sets it aside."""
    paused = "total, since 1970-01-01 00:00:00 UTC, holds 2 steps: ValueError: 0 is forbidden"
    assert paused in run("show")[1]
    takes = "Resumed workflow total: it takes 2 steps that it holds, the failed atom first."
    assert run("resume", "total")[:2] == (0, takes)
    assert "holds 2 steps; it resumes with the next epochs: ValueError" in run("show")[1]
    assert published(driver, "totals") == 1
    code, out, _ = run("resume", "workflows/total", "--skip", "--json")
    assert (code, json.loads(out)) == (
        0,
        {"resumed": "workflows/total", "paused": [], "skipped": True, "held": 2},
    )
    assert (published(driver, "totals"), published(driver, "total-failed")) == (2, 1)
    shown = json.loads(run("show", "--json")[1])
    assert shown["workflows"] == []
    assert [(one["kind"], one["target"]) for one in shown["newest"]] == [
        ("skip", "workflows/total"),
        ("resume", "workflows/total"),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("totl",), "there is no workflow 'totl'; did you mean total?"),
        (("workflows/x",), "there is no workflow 'x'"),
        (("twice",), "workflow twice is not paused; paused workflows: total"),
        (("Till",), "Till is not paused; paused: nothing"),
        (("Till", "--skip"), "Till is not a workflow"),
    ],
)
def test_resume_of_something_else_is_refused(
    run: Run, driver: Inline, words: tuple[str, ...], message: str
) -> None:
    """The message lists the pauses, or suggests a similar workflow; the log has no further record."""
    end = driver.log.end()
    code, _, err = run("resume", *words)
    assert code == 2
    assert message in err
    assert driver.log.end() == end


def test_pause_of_a_class_comes_before_a_workflow(run: Run) -> None:
    """A resume ends the pause of a class also if the workflow of a similar name is paused."""
    assert run("pause", "Till", "--reason", "cash")[0] == 0
    assert run("resume", "Till")[:2] == (0, "Resumed Till.")


def test_console_shows_and_resumes(driver: Inline) -> None:
    """The page's route lists the paused workflow, and resumes it as the command does."""
    with (
        RunningGateway(SPEC, driver.config.data, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        (shown,) = http.get(FLOW).json()["standing"]["workflows"]
        assert shown == {
            "name": "total",
            "since_us": 0,
            "failure": "ValueError: 0 is forbidden",
            "held": 2,
            "is_resuming": False,
        }
        order = {"kind": "resume", "target": "workflows/total", "skip": True}
        answer = http.post(FLOW, json=order)
        assert answer.json()["standing"]["workflows"][0]["is_resuming"]
        assert published(driver, "totals") == 2
        assert http.get(FLOW).json()["standing"]["workflows"] == []
        refused = http.post(FLOW, json=order)
        assert refused.status_code == 400
        assert "workflow total is not paused" in refused.json()["error"]["message"]
