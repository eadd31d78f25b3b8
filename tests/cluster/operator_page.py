"""The operator's page as a new user follows it: one machine, three hosts, four, and one again; no other command.

`scripts/cluster --parts page` runs it. The commands are those of docs/howto/hosts.md, with the addresses and paths of the lab in
place of those of the page. A customer that was made at the beginning is there at the end.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.checkout import TOP
from tests.cluster.lab import Host, Lab
from tests.waiting import wait_for

PAGE: Final = TOP / "docs" / "howto" / "hosts.md"
START_S: Final = 240.0
_BLOCK: Final = re.compile(r"^```(console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HOST: Final = re.compile(r"# host (\d)\n")
_RUNS: Final = ("penstock run", "penstock host")
_RUNNING: Final = "running; Ctrl-C stops"
_ONE_BROKER: Final = "\n[kafka]\nreplicas_min = 1\ninsync_min = 1\nappend_ms = 10000\n"
"""The lab has one broker."""


class Block(NamedTuple):
    """The commands of a host; without one, the file of the settings."""

    host: int | None
    text: str


def blocks() -> list[Block]:
    """Return the commands and the settings of the page, in order."""
    found = []
    for language, text in _BLOCK.findall(PAGE.read_text()):
        place = _HOST.match(text)
        assert (place is None) == (language == "toml"), f"no host is named: {text}"
        found.append(
            Block(None, text) if place is None else Block(int(place[1]), text[place.end() :])
        )
    return found


class OperatorPage:
    """Follows the page."""

    def __init__(self, lab: Lab) -> None:
        assert lab.store is not None
        assert lab.broker is not None
        self._lab = lab
        self._etc = lab.top / "etc"
        self._etc.mkdir()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._words = {
            "s3://company/boxoffice": lab.store.url("boxoffice"),
            "10.0.0.9:9092": lab.broker.servers,
            "10.0.0.1:7077": f"{lab.hosts[0].address}:7077",
            "/etc/penstock/secret": str(lab.secret),
            "/etc/penstock": str(self._etc),
            "/var/lib/penstock/boxoffice": str(lab.host_data),
        }

    def follow(self) -> None:
        """Run each command; what the page says in words is done where it says so."""
        *first, backup, last = [
            each for each in blocks() if "penstock" in each.text or each.host is None
        ]
        for block in first:
            if "penstock backup" in block.text:
                self._make("ada-first")
                self._stop(1)
            self._do(block)
        for host in (4, 3, 2):
            self._stop(host)
            self._find("ada-first")
        self._make("ada-last")
        self._do(backup)
        self._stop(1)
        self._do(last)
        for key in ("ada-first", "ada", "ada-last"):
            self._find(key)
        self._stop(1)

    def _do(self, block: Block) -> None:
        text = block.text
        for word, own in self._words.items():
            text = text.replace(word, own)
        if block.host is None:
            (self._etc / "penstock.toml").write_text(text + _ONE_BROKER)
            return
        for line in text.strip().splitlines():
            self._say(f"host {block.host}$ {line}")
            if line.startswith(_RUNS):
                self._start(block.host, line)
            else:
                self._say(self._run(block.host, line))

    def _host(self, number: int) -> Host:
        return self._lab.hosts[number - 1]

    def _begun(self, number: int, line: str, output: Path) -> subprocess.Popen[bytes]:
        folder = self._host(number).root
        program = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = f"cd {shlex.quote(str(folder))} && exec {line}"
        return self._host(number).start(
            ["bash", "-c", script], output, PATH=program, XDG_DATA_HOME=str(folder)
        )

    def _run(self, number: int, line: str) -> str:
        output = self._lab.top / f"command{time.monotonic_ns()}.log"
        process = self._begun(number, line, output)
        assert process.wait(START_S) == 0, f"{line}\n{output.read_text()}"
        return output.read_text()

    def _start(self, number: int, line: str) -> None:
        output = self._lab.top / f"run-of-{number}-{time.monotonic_ns()}.log"
        began = time.monotonic()
        process = self._running[number] = self._begun(number, line, output)

        def is_running() -> bool:
            assert process.poll() is None, output.read_text()
            return _RUNNING in output.read_text()

        wait_for(is_running, line, START_S)
        self._say(f"  runs after {time.monotonic() - began:.0f} s")

    def _stop(self, number: int) -> None:
        began = time.monotonic()
        process = self._running.pop(number)
        process.terminate()
        assert process.wait(120) == 0
        self._say(f"host {number}: Ctrl-C, ended after {time.monotonic() - began:.0f} s")

    def _make(self, key: str) -> None:
        self._run(
            1,
            f"curl -sS --fail-with-body -X POST localhost:8000/call/Customer/{key}/create --json '{{}}'",
        )

    def _find(self, key: str) -> None:
        self._run(1, f"curl -sS --fail-with-body localhost:8000/entities/Customer/{key}")

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
