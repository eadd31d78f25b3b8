"""Help, the version and errors come at once: they import neither validators nor the work of a command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands import COMMANDS
from tests.checkout import SHOP
from tests.history import journal_of

CLUSTER = {"confluent_kafka", "obstore"}

HEAVY = {
    *CLUSTER,
    *("deltalake", "duckdb", "granian", "httpx", "lmdb", "numpy", "prometheus_client", "psutil"),
    *("py4j", "pyarrow", "pydantic", "pyspark", "starlette", "uvloop"),
    *("rich.markdown", "typer.rich_utils"),
}
"""The packages of the extras `cluster` and `server`, and those that typer may load for values and pages."""

MODEL = {"penstock.model.application", "penstock.engine.execute"}
"""An application imports them; help and a mistake in the command line come before it."""

HELP = [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)]

MISTAKES = [
    ["nope"],
    ["run", "--nope"],
    ["run", "missing.py"],
    ["dev", "missing.py"],
    ["driver", "missing.py"],
    ["gateway", "missing.py"],
    ["view", "serve", "missing.py"],
    ["view", "feed", "missing.py", "reporting"],
    ["status", "missing.py"],
    ["status", "missing"],
    ["status", "missing:app,other"],
    ["sql", "FROM Item", "missing.py"],
    ["sql", "FROM Item"],
    ["apps", "missing.py"],
    ["deploy", "missing.py", "--check"],
    ["deploy", "missing.py"],
    ["rollback", "missing.py"],
    ["changes", "Item", "missing.py"],
    ["tail", "lines", "missing.py"],
    ["trace", "r1", "missing.py"],
    ["cancel", "r1", "missing.py"],
    ["replay", "missing.py"],
    ["what-if", "missing.py"],
    ["snapshot", "missing.py"],
    ["savepoint", "s1", "missing.py"],
    ["backup", "backups", "missing.py"],
    ["fork", "copy", "missing.py"],
    ["verify", "missing.py"],
    ["flow", "pause", "missing.py", "--reason", "test"],
    ["run", SHOP, "--set", "nope=1"],
    ["run", "missing.py", "--port", "8000", "--data", "missing", "--set", "cores=1"],
]

MISTAKES_IN_NAMES = [
    ["call", SHOP, "Nope", "n1", "create"],
    ["append", SHOP, "nope", "event"],
    ["history", "Nope", "n1", SHOP],
]
"""Only the application can say that these names are wrong."""

TABLES = {"numpy", "pyarrow"}
"""The packages that read parts of epochs."""

LATER = {"asyncio", "rich.console", "rich.progress", "penstock.deployment.code_in_force"}
"""What programs need that serve, follow deployments, or write for people; a command whose output is for programs does not."""

WORK = [
    (["explain", SHOP], set()),
    (["keys", "list", SHOP, "--data", "DATA"], {"rich.console"}),
    (["status", SHOP, "--data", "DATA"], {*TABLES, "lmdb", "psutil", "rich.console"}),
    (["history", "Item", "i1", SHOP, "--data", "DATA", "--json"], {*TABLES, "lmdb", "psutil"}),
    (["call", SHOP, "Item", "i1", "exists", "--data", "DATA"], {*TABLES, "lmdb", "psutil"}),
    (
        ["sql", "FROM Item", SHOP, "--data", "DATA"],
        {*TABLES, "duckdb", "lmdb", "psutil", "rich.console"},
    ),
]
"""Commands that do their work at a data directory where nothing runs, and the packages of `HEAVY` and `LATER` that each needs."""

PROGRAM = """
import contextlib, io, json, sys
from penstock.cli.main import execute

commands, heavy = json.load(sys.stdin)
found = []
for arguments in commands:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = execute(arguments)
    found.append([arguments, code, sorted(set(heavy) & (set(sys.modules) - before))])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("commands", "code", "unwanted"),
    [
        pytest.param(HELP, 0, HEAVY | MODEL, id="help"),
        pytest.param(MISTAKES, 2, HEAVY | MODEL, id="mistakes"),
        pytest.param(MISTAKES_IN_NAMES, 2, HEAVY, id="mistakes in names"),
    ],
)
def test_no_heavy_package_is_imported(
    commands: list[list[str]], code: int, unwanted: set[str]
) -> None:
    """Neither help nor a mistake on the command line loads the packages of the command's work."""
    question: list[Any] = [commands, sorted(unwanted)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [[command, code, []] for command in commands]


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("penstock.runtime.spark.runtime", {*CLUSTER, "duckdb"}),
        ("penstock.runtime.reads.reader", {*CLUSTER, "asyncio", "duckdb", "pyspark", "starlette"}),
        ("penstock.sql_view.view", {*CLUSTER, "asyncio", "penstock.deployment.code_in_force"}),
        (
            "penstock.gateway.serving",
            {*CLUSTER, "cryptography", "duckdb", "httpx", "pyspark"},
        ),
        (
            "penstock.console.routes",
            {*CLUSTER, "cryptography", "duckdb", "httpx", "pyspark"},
        ),
    ],
)
def test_process_starts_without_packages_of_later_work(module: str, unwanted: set[str]) -> None:
    """A process imports nothing that only some of its later work, or another process, needs."""
    program = f"import {module}, sys; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True
    )
    assert unwanted & set(answer.stdout.split()) == set()


def test_each_command_imports_only_the_packages_of_its_work(tmp_path: Path) -> None:
    """A command at a data directory loads no package that only other commands need."""
    journal_of(
        SHOP, tmp_path, [[("Item", "i1", "create", {"price": 3})], [("Item", "i1", "add", [2])]]
    )
    processes = []
    for arguments, _ in WORK:
        words = [str(tmp_path) if word == "DATA" else word for word in arguments]
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append((process, json.dumps([[words], sorted(HEAVY | LATER)])))
    loaded = [json.loads(process.communicate(question)[0])[0] for process, question in processes]
    assert [(code, set(found)) for _, code, found in loaded] == [
        (1 if arguments[0] == "status" else 0, needed) for arguments, needed in WORK
    ]


def test_interrupt_before_the_command_is_silent(tmp_path: Path) -> None:
    """Ctrl-C while the command line is imported ends with the exit code of Ctrl-C, and without a traceback."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from penstock.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
