"""Serializable transactions over plain Python classes, run as one dataflow on Apache Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import (
    Aborted,
    AlreadyExists,
    AskFailed,
    Cancelled,
    ClassChanged,
    ConfigError,
    Corrupt,
    DanglingReference,
    DefinitionError,
    Diverged,
    EpochFailed,
    Fenced,
    Forbidden,
    Gone,
    IntegrityError,
    Internal,
    JournalUnavailable,
    LimitExceeded,
    LogUnavailable,
    NoSuchEntity,
    OperationalError,
    OutsideTransaction,
    Overloaded,
    Paused,
    PenstockError,
    QueryError,
    ReadonlyViolation,
    RecordTooLarge,
    RequestConflict,
    RequestError,
    StateUnavailable,
    Stopping,
    Throttled,
    TimedOut,
    TooLate,
    Truncated,
    Unauthenticated,
    Unencodable,
    Unreachable,
    UserError,
    ViewUnavailable,
)
from penstock.model.application import App
from penstock.model.attribute import reference
from penstock.model.entity import Entity, entity, key
from penstock.model.entity_ask import ask
from penstock.model.handler import readonly, transactional
from penstock.model.limit import limit
from penstock.model.repeatable import now, random, request_id, uuid
from penstock.model.route import route
from penstock.model.savepoint import savepoint
from penstock.model.sending import send, send_after
from penstock.model.streams.ask import gather
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Emit, flow
from penstock.model.streams.portal import portal
from penstock.model.streams.routing import call, connect, sequencer, splitter
from penstock.model.streams.stream import emit, stream
from penstock.model.streams.task_rows import PerTask
from penstock.model.streams.task_state import clear, states

if TYPE_CHECKING:
    from penstock.client.asynchronous import AsyncClient
    from penstock.client.synchronous import Client
    from penstock.process.config import Config
    from penstock.runtime.local.runtime import LocalRuntime
    from penstock.runtime.spark.runtime import SparkRuntime
    from penstock.runtime.spark.table import read_table

__all__ = [
    "Aborted",
    "AlreadyExists",
    "App",
    "AskFailed",
    "AsyncClient",
    "Cancelled",
    "ClassChanged",
    "Client",
    "Config",
    "ConfigError",
    "Corrupt",
    "DanglingReference",
    "DefinitionError",
    "Diverged",
    "Emit",
    "Entity",
    "EpochFailed",
    "FailedAtom",
    "Fenced",
    "Forbidden",
    "Gone",
    "IntegrityError",
    "Internal",
    "JournalUnavailable",
    "LimitExceeded",
    "LocalRuntime",
    "LogUnavailable",
    "NoSuchEntity",
    "OperationalError",
    "OutsideTransaction",
    "Overloaded",
    "Paused",
    "PenstockError",
    "PerTask",
    "QueryError",
    "ReadonlyViolation",
    "RecordTooLarge",
    "RequestConflict",
    "RequestError",
    "SparkRuntime",
    "StateUnavailable",
    "Stopping",
    "Throttled",
    "TimedOut",
    "TooLate",
    "Truncated",
    "Unauthenticated",
    "Unencodable",
    "Unreachable",
    "UserError",
    "ViewUnavailable",
    "ask",
    "call",
    "clear",
    "connect",
    "emit",
    "entity",
    "flow",
    "gather",
    "key",
    "limit",
    "now",
    "portal",
    "random",
    "read_table",
    "readonly",
    "reference",
    "request_id",
    "route",
    "savepoint",
    "send",
    "send_after",
    "sequencer",
    "splitter",
    "states",
    "stream",
    "transactional",
    "uuid",
]

_LAZY: Final = {
    "AsyncClient": "penstock.client.asynchronous",
    "Client": "penstock.client.synchronous",
    "Config": "penstock.process.config",
    "LocalRuntime": "penstock.runtime.local.runtime",
    "SparkRuntime": "penstock.runtime.spark.runtime",
    "read_table": "penstock.runtime.spark.table",
}
"""Name to module: handlers need none of these, so each is imported at its first use."""


def __getattr__(name: str) -> Any:
    """Import a lazy name at its first use."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
