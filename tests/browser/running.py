"""A running application with its console: gateway and SQL view as they are run, a driver without Spark.

All three are processes that the real supervisor keeps running, so that the driver comes back when
the console kills it.
"""

import sys
import threading
from pathlib import Path
from typing import Any, Self

import httpx

from benchmarks.harness.ports import free_port
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.process import presence
from penstock.process.incidents import IncidentLog
from tests.waiting import wait_for

DEADLINE_S = 60.0
LOOK_S = 0.03


class RunningConsole:
    """An application, until the `with` block ends; `dev` lets the console kill its driver."""

    def __init__(self, spec: str, data: Path, *, dev: bool = True) -> None:
        port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE_S)
        self.said: list[str] = []
        self._data = data
        self.incidents = IncidentLog(data)
        self._stopping = threading.Event()
        serial = [sys.executable, "-m", "tests.browser.serial_process", spec, str(data)]
        common = [spec, "--supervised", "--data", str(data)]
        flags = ["--set", f"gateway.port={port}", *(["--dev"] if dev else [])]
        program = [sys.executable, "-m", "penstock"]
        children = [
            self._child("driver", serial),
            self._child("view", [*program, "view", "serve", *common]),
            self._child("gateway", [*program, "gateway", *common, *flags]),
        ]
        self._supervisor = Supervisor(children, self._note, self._note)
        self._thread = threading.Thread(target=self._keep, name="supervisor")

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            wait_for(lambda: self._supervisor.ready or not self._thread.is_alive(), "the start")
            assert self._thread.is_alive(), self.said
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.http.close()

    def call(self, path: str, **arguments: object) -> Any:
        """Make a call that succeeds; return its result."""
        answer = self.http.post(f"/call/{path}", json=arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _child(self, role: str, command: list[str]) -> Child:
        def ready(pid: int) -> bool:
            return any(one.pid == pid for one in presence.find(self._data, role))

        return Child(role, command, ready, stop_s=10.0)

    def _note(self, role: str, line: str) -> None:
        self.said.append(f"{role}: {line}")

    def _keep(self) -> None:
        try:
            while not self._stopping.wait(LOOK_S):
                self._supervisor.look()
        finally:
            self._supervisor.stop()
