"""The package shows exactly the public names, and importing it stays light."""

import subprocess
import sys
from operator import attrgetter

import penstock
from penstock.errors import BY_CODE

PUBLIC = [
    "Aborted",
    "AlreadyExists",
    "Answer",
    "App",
    "AskFailed",
    "AsyncClient",
    "Cancelled",
    "Change",
    "ClassChanged",
    "Client",
    "Config",
    "ConfigError",
    "Corrupt",
    "DanglingReference",
    "Deadlock",
    "DefinitionError",
    "Diverged",
    "Emit",
    "Entity",
    "EpochFailed",
    "Erased",
    "FailedAtom",
    "Fenced",
    "Final",
    "Forbidden",
    "Gone",
    "IntegrityError",
    "Internal",
    "JournalUnavailable",
    "LimitExceeded",
    "LocalRuntime",
    "LogUnavailable",
    "Mailed",
    "MigrationFailed",
    "NoSuchEntity",
    "NotUnique",
    "OperationalError",
    "Outcome",
    "OutsideTransaction",
    "Overloaded",
    "Paused",
    "PenstockError",
    "PerTask",
    "Principal",
    "Put",
    "QueryError",
    "ReadonlyViolation",
    "RecordTooLarge",
    "Removed",
    "RequestConflict",
    "RequestError",
    "SparkRuntime",
    "SparkSource",
    "StateUnavailable",
    "Stopping",
    "Throttled",
    "TimedOut",
    "TooLate",
    "Truncated",
    "Unauthenticated",
    "Unencodable",
    "Unhandled",
    "Unreachable",
    "UserError",
    "ViewUnavailable",
    "ask",
    "call",
    "changes",
    "clear",
    "connect",
    "cron",
    "effect",
    "effect_id",
    "emit",
    "entity",
    "every",
    "flow",
    "from_file",
    "gather",
    "generator",
    "http",
    "index",
    "internal",
    "kafka",
    "key",
    "limit",
    "mail",
    "migrate",
    "now",
    "portal",
    "postgres",
    "principal",
    "publish",
    "random",
    "read_table",
    "readonly",
    "reference",
    "registry",
    "request_id",
    "route",
    "rows",
    "savepoint",
    "search",
    "secret",
    "send",
    "send_after",
    "send_at",
    "sequencer",
    "service",
    "signed_by",
    "splitter",
    "sql",
    "sqlite",
    "states",
    "stream",
    "transactional",
    "unique",
    "uuid",
    "view",
    "was",
    "webhook",
]
HEAVY = {"deltalake", "duckdb", "httpx", "pandas", "py4j", "pyarrow", "pyspark"}


def test_public_names_are_these() -> None:
    """A public name appears or goes only together with this list, and each one exists."""
    assert penstock.__all__ == PUBLIC
    assert [name for name in PUBLIC if not hasattr(penstock, name)] == []


def test_every_error_is_public() -> None:
    """A program catches each error of Penstock by its name in the package."""
    assert [
        name for name in map(attrgetter("__name__"), BY_CODE.values()) if name not in PUBLIC
    ] == []


def test_importing_the_package_is_light() -> None:
    """`import penstock` loads neither Spark nor any of the other heavy libraries."""
    program = "import penstock, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert HEAVY & set(answer.stdout.split()) == set()


def test_command_says_what_is_not_installed() -> None:
    """Without the extra `server`, the command names it instead of showing a traceback."""
    program = """
import sys
sys.modules.update(dict.fromkeys(["pyarrow", "numpy", "lmdb"]))
from penstock.__main__ import main
main()
"""
    words = [sys.executable, "-c", program, "sql", "FROM Item", "--data", "data"]
    answer = subprocess.run(words, capture_output=True, text=True)
    assert answer.returncode == 2
    assert "pip install 'penstock[server]'" in answer.stderr
    assert "Traceback" not in answer.stderr
