"""Hazards: objects that make a later run of a handler differ, such as clocks and outside calls.

Objects are recognised by identity, not by the name under which a module imports them. The list serves
warnings and is not complete; replay finds the rest.
"""

import ast
import enum
from collections.abc import Iterator
from itertools import accumulate
from types import ModuleType
from typing import Any, Final

from penstock.dataflow.graph import Hazard

MESSAGES: Final = {
    Hazard.CLOCK: "reads the real clock; use penstock.now()",
    Hazard.CHANCE: "differs at every run; use penstock.random()",
    Hazard.UUID: "differs at every run; use penstock.uuid()",
    Hazard.HASH: "differs between processes",
    Hazard.ENVIRONMENT: "depends on the environment of the process; pass it in the request",
    Hazard.OUTSIDE: (
        "reaches outside: a rerun repeats it, no abort undoes it, looking back refuses it; "
        "call it outside of handlers and pass its result in the request"
    ),
    Hazard.SETTING: "changes its process, which other transactions share; the change is taken back",
}
"""The warning about an object of each hazard, after the object's name."""

_OPENS: Final = ("_io", "io", "codecs", "gzip", "bz2", "lzma", "tarfile", "wave")
_PATH: Final = (
    *("open", "read_bytes", "read_text", "write_bytes", "write_text", "touch", "mkdir", "rmdir"),
    *("unlink", "rename", "replace", "chmod", "symlink_to", "hardlink_to"),
)
_SYSTEM: Final = (
    *("abort", "chmod", "chown", "fork", "forkpty", "kill", "killpg", "link", "makedirs", "mkdir"),
    *("mkfifo", "open", "popen", "posix_spawn", "posix_spawnp", "remove", "removedirs", "rename"),
    *("renames", "replace", "rmdir", "sendfile", "startfile", "symlink", "system", "truncate"),
    *("unlink", "utime", "write"),
    *(f"exec{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *(f"spawn{how}" for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
)
_BY_NAME: Final = {
    **{(module, "open"): Hazard.OUTSIDE for module in _OPENS},
    **{("pathlib", name): Hazard.OUTSIDE for name in _PATH},
    **{(module, name): Hazard.OUTSIDE for module in ("os", "posix", "nt") for name in _SYSTEM},
    ("builtins", "hash"): Hazard.HASH,
    ("builtins", "id"): Hazard.HASH,
    ("builtins", "input"): Hazard.OUTSIDE,
    ("datetime", "now"): Hazard.CLOCK,
    ("datetime", "utcnow"): Hazard.CLOCK,
    ("datetime", "today"): Hazard.CLOCK,
    ("uuid", "uuid1"): Hazard.UUID,
    ("uuid", "uuid4"): Hazard.UUID,
    ("random", "Random"): None,  # a generator with its own seed
    ("time", "struct_time"): None,
    ("sys", "setrecursionlimit"): Hazard.SETTING,
    ("sys", "setswitchinterval"): Hazard.SETTING,
    ("sys", "set_int_max_str_digits"): Hazard.SETTING,
    ("sys", "settrace"): Hazard.SETTING,
    ("sys", "setprofile"): Hazard.SETTING,
    **{
        (module, name): Hazard.SETTING
        for module in ("warnings", "_py_warnings")  # the latter since Python 3.14
        for name in ("simplefilter", "filterwarnings", "resetwarnings")
    },
    ("time", "strftime"): None,
    ("time", "strptime"): None,
}
_OUTSIDE_MODULES: Final = (
    # Python's own
    *("_socket", "_sqlite3", "asyncio", "concurrent", "ctypes", "dbm", "ftplib", "http.client"),
    *("http.server", "imaplib", "multiprocessing", "nntplib", "poplib", "pty", "shelve", "shutil"),
    *("smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "syslog", "telnetlib"),
    *("tempfile", "threading", "urllib.request", "webbrowser", "xmlrpc.client"),
    # HTTP, RPC, sockets and mail
    *("aiohttp", "aiosmtplib", "dns", "grpc", "httpcore", "httplib2", "httpx", "ldap3", "niquests"),
    *("paramiko", "pycurl", "requests", "treq", "urllib3", "websocket", "websockets", "zmq"),
    # databases and caches
    *("MySQLdb", "aiomysql", "aiosqlite", "asyncpg", "cassandra", "clickhouse_connect"),
    *("clickhouse_driver", "couchdb", "cx_Oracle", "duckdb", "elasticsearch", "influxdb_client"),
    *("motor", "mysql", "neo4j", "opensearchpy", "oracledb", "peewee", "pg8000", "psycopg"),
    *("psycopg2", "pymemcache", "pymongo", "pymssql", "pymysql", "pyodbc", "redis", "snowflake"),
    *("sqlalchemy", "sqlmodel", "tortoise", "valkey"),
    # queues and services
    *("aio_pika", "aioboto3", "aiobotocore", "aiokafka", "azure", "boto3", "botocore", "celery"),
    *("confluent_kafka", "dramatiq", "google.api_core", "google.cloud", "kafka", "kombu", "nats"),
    *("openai", "pika", "rq", "s3fs", "sendgrid", "slack_sdk", "stripe", "twilio"),
)
_BY_MODULE: Final = {
    "time": Hazard.CLOCK,
    "random": Hazard.CHANCE,
    "secrets": Hazard.CHANCE,
    "os": Hazard.ENVIRONMENT,
    "posix": Hazard.ENVIRONMENT,
    "platform": Hazard.ENVIRONMENT,
    "locale": Hazard.ENVIRONMENT,
    "_locale": Hazard.ENVIRONMENT,
    "gc": Hazard.SETTING,
    "signal": Hazard.SETTING,
    "_signal": Hazard.SETTING,
    "resource": Hazard.SETTING,
    **dict.fromkeys(_OUTSIDE_MODULES, Hazard.OUTSIDE),
}


def hazard_of(thing: Any) -> Hazard | None:
    """Return why an object is a hazard in a handler; None if it is not known as a hazard."""
    if isinstance(thing, ModuleType) or _is_value(thing):
        return None  # a use of a member is a hazard, a use of the module is not
    module, name = _identity(thing)
    top = module.partition(".")[0]
    for place in (module, top):
        if (place, name) in _BY_NAME:
            return _BY_NAME[place, name]
    if not callable(thing) and (module, name) != ("os", "_Environ"):
        return None
    within = accumulate(module.split("."), "{}.{}".format)
    return next((_BY_MODULE[place] for place in within if place in _BY_MODULE), None)


def _is_value(thing: Any) -> bool:
    """Whether an object is a class of exceptions or an enumeration, which has no effects."""
    return isinstance(thing, type) and issubclass(thing, BaseException | enum.Enum)


def _identity(thing: Any) -> tuple[str, str]:
    """Return the module and the last name of an object, or of its type."""
    owner = getattr(thing, "__self__", None)
    module = getattr(thing, "__module__", None)
    if module is None and owner is not None and not isinstance(owner, ModuleType):
        module = getattr(owner if isinstance(owner, type) else type(owner), "__module__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return module or type(thing).__module__, name.rpartition(".")[2]


def lost_updates(statement: ast.Assign | ast.AugAssign) -> Iterator[tuple[ast.Await, str]]:
    """Yield each wait between the read and the write of an attribute, which other handlers may change meanwhile."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        place, owner = ast.unparse(target), target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        is_read = isinstance(statement, ast.AugAssign)
        for part in _parts_of(statement.value) if isinstance(owner, ast.Attribute) else ():
            if isinstance(part, ast.Await) and is_read:
                question = ast.unparse(part)
                later = ast.unparse(statement).replace(question, "reply")
                yield (
                    part,
                    f"{place} is read before the wait, and written behind it: changes meanwhile are lost; "
                    f"write `reply = {question}`, and in the next line `{later.replace('(reply)', 'reply')}`",
                )
                break
            is_read = is_read or (isinstance(part, ast.expr) and ast.unparse(part) == place)


def _parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of an expression in the order of the text, without those of functions inside of it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield from _parts_of(child)
