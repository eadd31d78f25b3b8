"""Log output in both forms, as `configure` sets it for a process."""

import io
import json
import logging
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Entity, LocalRuntime, key
from penstock.cli.running.supervisor import Supervisor
from penstock.model.call import Call
from penstock.process.logs import LEVELS, QUIET, JsonLines, LossyStream, TextLines, configure
from tests.checkout import SHOP, TOP
from tests.docs.test_cli_run import foreground, then_stop

_log = logging.getLogger("penstock.somewhere")

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FORGED = "lost\n2026-01-01T00:00:00.000Z info penstock: all is well\x1b[31m\u2028"


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Leave logging as other tests expect it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET)


def told(form: str, say: Callable[[], object], level: str = "info") -> str:
    stream = io.StringIO()
    configure("driver", form, level, stream)
    say()
    return stream.getvalue()


def as_json(say: Callable[[], object]) -> dict[str, Any]:
    (line,) = told("json", say).splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def fail() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        _log.exception("it failed", extra={"epoch": 7})


def test_failures_of_the_link_to_java_are_told_once() -> None:
    """py4j logs an error with its traceback in the name of the program, and raises it, too."""

    def log_from(path: str) -> None:
        record = logging.LogRecord("root", logging.INFO, path, 1, "it broke", (), None)
        logging.getLogger().handle(record)

    assert told("text", lambda: log_from("lib/py4j/java_gateway.py")) == ""
    assert "it broke" in told("text", lambda: log_from("shop/java_gateway.py"))


def test_json_line_has_all_that_is_known() -> None:
    """An event is one object: time, level, source, message, and facts."""
    line = as_json(lambda: _log.warning("it is %s", "late", extra={"cause": "disk", "epoch": 7}))
    assert re.fullmatch(TIME, line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "penstock.somewhere",
        "role": "driver",
        "pid": os.getpid(),
        "event": "it is late",
        "cause": "disk",
        "epoch": 7,
    }


class Till(Entity):
    """An entity whose handlers write events."""

    name: str = key()

    def ring(self) -> None:
        _log.info("it rings", extra={"till": self.name})

    def name_it(self) -> None:
        _log.info("it rings", extra={"request": "mine"})


def test_event_of_a_handler_names_its_request() -> None:
    """Handlers write with `logging`, and each line has the id of the request; what they give themselves stays."""
    runtime = LocalRuntime(App("tills", Till))
    runtime.call.Till.create("front")

    def ring() -> None:
        runtime.submit(Call("Till", "front", "ring", request_id="order-7"))
        _log.info("outside")
        runtime.submit(Call("Till", "front", "name_it", request_id="order-8"))

    handler, outside, given = map(json.loads, told("json", ring).splitlines())
    assert (handler["request"], handler["till"]) == ("order-7", "front")
    assert "request" not in outside
    assert given["request"] == "mine"


def test_text_line_reads_from_left_to_right() -> None:
    """A person finds time, level, logger, event, and its facts behind it."""
    facts = {"cause": "the disk is full", "epoch": 7, "path": Path("a/b"), "none": ""}
    line = told("text", lambda: _log.warning("it is late", extra=facts))
    expected = (
        r" warning penstock\.somewhere: it is late "
        r'cause="the disk is full" epoch=7 path=a/b none=""\n'
    )
    assert re.fullmatch(TIME + expected, line)


def test_exception_is_one_field() -> None:
    """A traceback does not break a line of JSON; for people it stands indented below."""
    line = as_json(fail)
    assert line["exception"].startswith("Traceback")
    assert line["epoch"] == 7
    first, *below = told("text", fail).splitlines()
    assert first.endswith("it failed epoch=7")
    assert "Traceback" in below[0]
    assert {one[:2] for one in below} == {"  "}


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_message_forges_a_line(form: str) -> None:
    """Foreign text with line ends and colours stays in one line."""
    said = told(form, lambda: _log.error("no %s", FORGED, extra={"cause": FORGED}))
    assert said.count("\n") == 1
    assert said.isascii()
    assert "\x1b" not in said


def test_every_value_can_be_told() -> None:
    """Values without a JSON form are text, and reserved names get a `_`."""
    facts = {
        "nan": math.nan,
        "path": Path("a"),
        "nested": {1: (b"x", [math.inf])},
        "torn": "\ud800",
        "pid": 3,
        "role": "worker",
    }
    line = as_json(lambda: _log.info("facts", extra=facts))
    assert line["nan"] == "nan"
    assert line["path"] == "a"
    assert line["nested"] == {"1": ["b'x'", ["inf"]]}
    assert (line["pid"], line["pid_"], line["role"], line["role_"]) == (
        os.getpid(), 3, "driver", "worker",
    )  # fmt: skip
    assert told("text", lambda: _log.info("facts", extra=facts)).count("\n") == 1


@pytest.mark.parametrize("level", LEVELS)
def test_level_is_the_least_that_is_shown(level: str) -> None:
    """Events below the level are left out; events at the level or above are written."""

    def say() -> None:
        for one in LEVELS:
            _log.log(getattr(logging, one.upper()), one)

    shown = [line.split()[1] for line in told("text", say, level).splitlines()]
    assert shown == list(LEVELS[LEVELS.index(level) :])


def test_libraries_do_not_chatter() -> None:
    """Spark's bridge and HTTP clients are heard when something is wrong, if at all."""

    def chatter() -> None:
        logging.getLogger("py4j.clientserver").error("while sending or receiving")
        logging.getLogger("httpx").info("HTTP Request: GET")
        logging.getLogger("urllib3.connectionpool").warning("retrying")

    lines = told("text", chatter, "debug").splitlines()
    assert [line.split(": ")[1] for line in lines] == ["retrying"]


def test_warnings_are_events() -> None:
    """A Python warning is a line like any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        line = as_json(lambda: warnings.warn("old thing", stacklevel=1))
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")
    assert "old thing" in line["event"]


def test_configuring_again_replaces() -> None:
    """A second configuration replaces the first: each event is written once."""
    first = io.StringIO()
    configure("driver", "text", "info", first)
    assert told("json", lambda: _log.info("once")).count("\n") == 1
    assert first.getvalue() == ""


def test_supervisor_writes_lines_for_programs_only(tmp_path: Path) -> None:
    """Under `log_format = json` its own messages, its children's lines and their output are JSON."""
    output = io.StringIO()
    configure("supervisor", "json", "info", output)
    plain = foreground(SHOP, tmp_path, output)
    shown = replace(plain, settings=replace(plain.settings, log_format="json"))
    passed_on = '{"time": "2026-01-01T00:00:00.000Z", "role": "gateway", "event": "as it was"}'

    def all_said(supervisor: Supervisor) -> bool:
        return output.getvalue().count('"line": "here"') == 3 and "console" in output.getvalue()

    shown.say("gateway", passed_on)
    shown.run(then_stop(all_said))
    shown.tell("driver", "is there again")
    lines = output.getvalue().splitlines()
    assert lines[0] == passed_on
    found = [json.loads(line) for line in lines]
    assert {one["role"] for one in found} == {"supervisor", "gateway"}
    assert found[-1]["event"] == "driver is there again"
    printed = [one["process_role"] for one in found if one.get("line") == "here"]
    assert sorted(printed) == ["driver", "gateway", "view"]


def test_manual_shows_real_lines() -> None:
    """The two lines in the operations manual are one event in both forms."""
    page = (TOP / "docs" / "operations" / "logs.md").read_text()
    shown = re.search(r"```json\n(.*?)\n```.*?```\n(.*?)\n```", page, re.DOTALL)
    assert shown is not None
    told: dict[str, Any] = json.loads(shown[1])
    record = logging.makeLogRecord(
        {
            "name": told["logger"],
            "levelname": told["level"].upper(),
            "msg": told["event"],
            "created": datetime.fromisoformat(told["time"]).timestamp(),
            "cause": told["cause"],
        }
    )
    assert TextLines().format(record) == shown[2]
    assert json.loads(JsonLines("driver").format(record)) == told | {"pid": os.getpid()}


@pytest.mark.parametrize("level", LEVELS)
def test_last_words_of_a_process_are_kept_at_every_level(tmp_path: Path, level: str) -> None:
    """The reason for a process's end is not an event of its log, so the level does not hide it."""
    output = io.StringIO()
    configure("supervisor", "json", level, output)
    plain = foreground(SHOP, tmp_path, output)
    shown = replace(plain, settings=replace(plain.settings, log_format="json"))
    shown.say("driver", "error [config] cores = 0: must be at least 1")
    (line,) = output.getvalue().splitlines()
    assert json.loads(line)["line"] == "error [config] cores = 0: must be at least 1"


def test_output_that_cannot_be_written_is_dropped_and_counted() -> None:
    """A full disk under the output ends no process; the first line after it says how many are missing."""
    with Path("/dev/full").open("wb") as full, tempfile.TemporaryFile() as free:
        stream = LossyStream(os.dup(full.fileno()))
        for number in range(3):
            assert stream.write(f"lost {number}\n") == 7
            print("lost, too", file=stream, flush=True)
        assert stream.dropped == 6
        os.dup2(free.fileno(), stream.fileno())
        stream.write("written ✓\n")
        free.seek(0)
        assert free.read().decode() == "6 lines of output were dropped\nwritten ✓\n"
        os.close(stream.fileno())
