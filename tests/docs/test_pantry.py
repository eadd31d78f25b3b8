"""The README of the pantry is true: its commands run one after the other, against Kafka, and real processes but for Spark."""

import itertools
import json
import re
import shlex
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import Producer

from tests.checkout import TOP
from tests.deployments import kept_imports
from tests.docs.conftest import Run
from tests.kafka_server import Broker
from tests.views.processes import deployed
from tests.waiting import meanwhile, wait_for

__all__ = ["kept_imports"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports", "forgotten_example")]

TEXT = (TOP / "examples" / "pantry" / "README.md").read_text()
LOOK_S = 0.5  # each look starts a program
FOLLOW_S = 120.0
"""It reads a few messages, and itself gives up after 30 s without an answer."""


@pytest.fixture
def forgotten_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of this test be imported, also after a test of the example in the same process."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pantry"]:
        monkeypatch.delitem(sys.modules, name)


def followed(line: str) -> Any:
    """Return the sums that the program of a line prints; None before there is a topic."""
    command = line.split()
    assert command[0] == "python"
    words = [sys.executable, *command[1:]]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=FOLLOW_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{line}: it has not come to the end of the topic in {FOLLOW_S} s")
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_the_reader_ends_while_others_write(
    kafka_server: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what the topic has when it begins, and a run behind it the rest."""
    topic, first = "pantry.while", 30
    monkeypatch.chdir(TOP / "examples")
    kafka_server.make(topic, 3)
    writer = Producer({"bootstrap.servers": kafka_server.servers, "linger.ms": 0})

    def write(at: int) -> None:
        jar = json.dumps({"after": {"content": "rice", "grams": 1}})
        writer.produce(topic, key=json.dumps({"_key": f"j{at}"}), value=jar, partition=at % 3)
        writer.flush()

    def go_on(stop: threading.Event) -> None:
        for at in itertools.count(first):
            write(at)
            if stop.wait(0.01):
                return

    line = f"python pantry/follow.py {kafka_server.servers} {topic} {tmp_path / 'sums.json'}"
    for at in range(first):
        write(at)
    with meanwhile(go_on):
        begun = followed(line)["rice"]
    assert begun >= first
    assert followed(line)["rice"] > begun


def test_commands_of_the_readme_run(
    penstock: Run, kafka_server: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums follow the jars, also over a removal and an order to rebuild; the orders of every view reach this one."""
    begin, fill, follow = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    new, setting, run = begin.splitlines()
    assert run == "penstock run pantry"
    assert penstock(*shlex.split(new)[1:])[0] == 0
    (url,) = re.findall(r"^export PENSTOCK_VIEWS_CHANGES_URL='(.*)'$", setting)
    address = url.replace("localhost:9092", kafka_server.servers)
    monkeypatch.setenv("PENSTOCK_VIEWS_CHANGES_URL", address)
    spec, data = str(Path("pantry").absolute()), Path(".penstock/pantry").absolute()

    def told(line: str = follow) -> Any:
        return followed(line.replace("localhost:9092", kafka_server.servers))

    def call(*words: str) -> str:
        code, output, errors = penstock(*words)
        assert code == 0, errors
        return output

    with ExitStack() as stack:
        gateway = stack.enter_context(deployed(spec, data, changes=address))
        monkeypatch.setenv("PENSTOCK_GATEWAY_PORT", str(urlsplit(gateway).port))
        for line in fill.splitlines():
            call(*shlex.split(line)[1:])
        wait_for(lambda: told() == {"rice": 600}, "the sums of the page", look_s=LOOK_S)
        for order in ("pause", "resume"):
            call("view", order, "pantry", "changes")
        call("call", "pantry", "Jar", "j2", "delete")
        wait_for(lambda: told() == {"rice": 400}, "the removal", look_s=LOOK_S)
        call("view", "rebuild", "pantry", "changes")
        again = follow.replace("sums.json", "again.json")
        wait_for(
            lambda: told(again) == {"rice": 400},
            "the sums of a reader that begins again",
            look_s=LOOK_S,
        )
        question = {"questions": [{"view": "changes", "sql": "SELECT 1"}]}
        refused = httpx.post(f"{gateway}/at", json=question, timeout=60)
        assert refused.is_client_error
        assert "answers no questions" in refused.text
        listed = json.loads(call("view", "list", "pantry", "--json"))
        assert [(each["name"], each["target"]) for each in listed["views"]] == [
            ("changes", "kafka")
        ]
