"""Serializable transactions over plain Python classes, run as one dataflow on Apache Spark."""

import typing
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    Aborted,
    AlreadyExists,
    AskFailed,
    Cancelled,
    ClassChanged,
    ConfigError,
    Corrupt,
    DanglingReference,
    Deadlock,
    DefinitionError,
    Diverged,
    EpochFailed,
    Erased,
    Fenced,
    Forbidden,
    Gone,
    IntegrityError,
    Internal,
    JournalUnavailable,
    LimitExceeded,
    LogUnavailable,
    MigrationFailed,
    NoSuchEntity,
    NotUnique,
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
    Unhandled,
    Unreachable,
    UserError,
    ViewUnavailable,
)

if TYPE_CHECKING:
    from penstock.client.asynchronous import AsyncClient
    from penstock.client.synchronous import Client
    from penstock.effects.http_effects import Answer, http, webhook
    from penstock.effects.mail_effect import Mailed, mail
    from penstock.model.application import App
    from penstock.model.attribute import reference, was
    from penstock.model.effect import Final, Outcome, effect, effect_id, secret
    from penstock.model.entity import Entity, entity, key
    from penstock.model.handler import internal, readonly, transactional
    from penstock.model.index import index, unique
    from penstock.model.limit import limit
    from penstock.model.migration import migrate
    from penstock.model.principal import Principal
    from penstock.model.registry import registry
    from penstock.model.repeatable import now, principal, random, request_id, uuid
    from penstock.model.route import route, signed_by
    from penstock.model.savepoint import savepoint
    from penstock.model.schedule import cron, every
    from penstock.model.sending import ask, send, send_after, send_at
    from penstock.model.streams.ask import gather
    from penstock.model.streams.change_stream import Change, changes
    from penstock.model.streams.failed_atom import FailedAtom
    from penstock.model.streams.flow import Emit, flow
    from penstock.model.streams.generator import from_file, generator
    from penstock.model.streams.portal import portal
    from penstock.model.streams.published_table import publish
    from penstock.model.streams.routing import call, connect, sequencer, splitter
    from penstock.model.streams.row_change import Put, Removed
    from penstock.model.streams.row_function import rows
    from penstock.model.streams.service import service
    from penstock.model.streams.stream import emit, stream
    from penstock.model.streams.task_rows import PerTask
    from penstock.model.streams.task_state import clear, states
    from penstock.model.target_choice import kafka, postgres, search, sqlite
    from penstock.model.views.sql_table import sql
    from penstock.model.views.view import view
    from penstock.process.config import Config
    from penstock.runtime.local.runtime import LocalRuntime
    from penstock.runtime.spark.data_source import SparkSource
    from penstock.runtime.spark.runtime import SparkRuntime
    from penstock.runtime.spark.table import read_table

__all__ = [
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

_DEFINITIONS: typing.Final = {
    "penstock.model.application": ("App",),
    "penstock.model.attribute": ("reference", "was"),
    "penstock.model.effect": ("Final", "Outcome", "effect", "effect_id", "secret"),
    "penstock.model.entity": ("Entity", "entity", "key"),
    "penstock.model.handler": ("internal", "readonly", "transactional"),
    "penstock.model.index": ("index", "unique"),
    "penstock.model.limit": ("limit",),
    "penstock.model.migration": ("migrate",),
    "penstock.model.registry": ("registry",),
    "penstock.model.principal": ("Principal",),
    "penstock.model.repeatable": ("now", "principal", "random", "request_id", "uuid"),
    "penstock.model.route": ("route", "signed_by"),
    "penstock.model.savepoint": ("savepoint",),
    "penstock.model.schedule": ("cron", "every"),
    "penstock.model.sending": ("ask", "send", "send_after", "send_at"),
    "penstock.model.streams.ask": ("gather",),
    "penstock.model.streams.failed_atom": ("FailedAtom",),
    "penstock.model.streams.flow": ("Emit", "flow"),
    "penstock.model.streams.change_stream": ("Change", "changes"),
    "penstock.model.streams.generator": ("from_file", "generator"),
    "penstock.model.streams.portal": ("portal",),
    "penstock.model.streams.published_table": ("publish",),
    "penstock.model.streams.routing": ("call", "connect", "sequencer", "splitter"),
    "penstock.model.streams.row_change": ("Put", "Removed"),
    "penstock.model.streams.row_function": ("rows",),
    "penstock.model.streams.service": ("service",),
    "penstock.model.streams.stream": ("emit", "stream"),
    "penstock.model.streams.task_rows": ("PerTask",),
    "penstock.model.streams.task_state": ("clear", "states"),
    "penstock.model.views.sql_table": ("sql",),
    "penstock.model.target_choice": ("kafka", "postgres", "search", "sqlite"),
    "penstock.model.views.view": ("view",),
}
"""Module to names that applications use. The first use of a name imports all of them, so
that no handler imports a module while it runs."""

_SERVICES: typing.Final = {
    "Answer": "penstock.effects.http_effects",
    "AsyncClient": "penstock.client.asynchronous",
    "Client": "penstock.client.synchronous",
    "Config": "penstock.process.config",
    "LocalRuntime": "penstock.runtime.local.runtime",
    "Mailed": "penstock.effects.mail_effect",
    "SparkRuntime": "penstock.runtime.spark.runtime",
    "SparkSource": "penstock.runtime.spark.data_source",
    "http": "penstock.effects.http_effects",
    "mail": "penstock.effects.mail_effect",
    "read_table": "penstock.runtime.spark.table",
    "webhook": "penstock.effects.http_effects",
}
"""Name to module: handlers need none of these, so each is imported at its own first use."""


if not TYPE_CHECKING:  # else type checkers would take each misspelt name for a public one

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use: most commands need none of them."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        homes = {_SERVICES[name]: (name,)} if name in _SERVICES else _DEFINITIONS
        for home, names in homes.items():
            module = import_module(home)
            globals().update({public: getattr(module, public) for public in names})
        return globals()[name]


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
