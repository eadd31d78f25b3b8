"""The pages about changes of a database are true: the snippet runs, and the way out of an old application works word by word."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from benchmarks.cluster import USER, Cluster
from benchmarks.harness.ports import free_port
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.process.data_directory import DataDirectory
from tests.checkout import TOP
from tests.forked import processes
from tests.views.processes import driving
from tests.waiting import wait_for

PAGE = TOP / "docs" / "CAPTURES.md"
STRANGLE = TOP / "docs" / "howto" / "strangle.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOK_S = 0.5  # each look starts a command
SHOWN = {
    "capture list": "following",
    "name, points": "Ada",
    "email, points": "bob@old.example",
    "is_moved, late": "ada@new.example",
}
"""A part of the output of commands, after which the reader goes on; the page shows it a moment later."""


def test_the_snippet_runs() -> None:
    """It is a whole program with a test of its own."""
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "snippet"})


class Reader:
    """A person who follows the page in a folder, with a database of the old application."""

    def __init__(self, folder: Path, postgres: Cluster) -> None:
        self.folder = folder
        self._address = f"postgresql://{USER}@127.0.0.1:{postgres.port}/shop"
        self._stack = ExitStack()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "COLUMNS": "200", "PENSTOCK_DATA": str(folder / "data")}
        self._environment = {**os.environ, **own}
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")

    def follow(self, language: str, text: str) -> None:
        match language:
            case "sql":
                wait_for(lambda: self._carried_out(text), text)
            case "toml":
                text = text.replace("postgresql://penstock@127.0.0.1/shop", self._address)
                (self.folder / "strangle.toml").write_text(text)
            case _:
                assert language == "console"
                for line in text.splitlines():
                    self._command(line)

    def close(self) -> None:
        self._stack.close()

    def _carried_out(self, text: str) -> bool:
        """Give statements; those that come a moment too early, before a view is filled or a slot is free, are given again."""
        try:
            with psycopg.connect(self._address) as connection:
                connection.execute(text.encode())
        except (psycopg.errors.UndefinedTable, psycopg.errors.ObjectInUse):
            return False
        return True

    def _command(self, line: str) -> None:
        if line.startswith("penstock run "):
            self._run()
            return
        expected = next((text for part, text in SHOWN.items() if part in line), "")
        told = ""

        def is_shown() -> bool:
            nonlocal told
            done, told = self._output(line)
            return done and expected in told

        deadline = time.monotonic() + 60
        while not is_shown():
            assert time.monotonic() < deadline, f"{line}\n{told}"
            time.sleep(LOOK_S)

    def _output(self, line: str) -> tuple[bool, str]:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr

    def _run(self) -> None:
        """Run what `penstock run` runs, but for Spark."""
        data, spec = self.folder / "data", str(self.folder / "strangle")
        deploying = processes().Process(target=_deploy, args=(spec, data))
        deploying.start()
        deploying.join()
        self._stack.enter_context(driving(spec, data))
        words = ["view serve", "gateway", "capture feed {} old", "view feed {} back"]
        for each in words:
            named = each.format("strangle") if "{}" in each else f"{each} strangle"
            command = [
                sys.executable,
                "-m",
                "penstock",
                *named.split(),
                "--config",
                "strangle.toml",
            ]
            command += ["--set", f"gateway.port={free_port('127.0.0.1')}"]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL
            )
            self._stack.callback(process.wait)
            self._stack.callback(process.kill)


def _deploy(spec: str, data: Path) -> None:
    app = load_app(spec)
    directory = DataDirectory(data)
    directory.create("")
    with closing(directory.open_journal(app)) as journal:
        journal.deploy()
        deploy(data, spec, app, journal)


@pytest.mark.long
def test_the_way_out_of_an_old_application(postgres: Cluster, tmp_path: Path) -> None:
    """Each statement and each command of the page works, in this order."""
    with closing(Reader(tmp_path, postgres)) as reader:
        for language, text in BLOCK.findall(STRANGLE.read_text()):
            reader.follow(language, text)
