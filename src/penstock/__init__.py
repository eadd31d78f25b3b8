"""Serializable transactions over plain Python classes, run as one dataflow on Apache Spark."""

from typing import TYPE_CHECKING, Any

from penstock.errors import (
    Aborted,
    AlreadyExists,
    DefinitionError,
    IntegrityError,
    LimitExceeded,
    NoSuchEntity,
    OperationalError,
    PenstockError,
    RequestError,
    UserError,
)
from penstock.model.application import App
from penstock.model.context import now, random, request_id, uuid
from penstock.model.entity import entity, key, readonly, transactional
from penstock.model.route import route
from penstock.model.savepoint import savepoint

if TYPE_CHECKING:
    from penstock.client.asynchronous import AsyncClient
    from penstock.client.synchronous import Client

__all__ = [
    "Aborted",
    "AlreadyExists",
    "App",
    "AsyncClient",
    "Client",
    "DefinitionError",
    "IntegrityError",
    "LimitExceeded",
    "NoSuchEntity",
    "OperationalError",
    "PenstockError",
    "RequestError",
    "UserError",
    "entity",
    "key",
    "now",
    "random",
    "readonly",
    "request_id",
    "route",
    "savepoint",
    "transactional",
    "uuid",
]


def _read_table(app: App, *given: Any) -> Any:
    """Import Spark when a table is first asked for."""
    from penstock.runtime.spark.table import table_of  # noqa: PLC0415

    return table_of(app, *given)


App.read_table = _read_table


def __getattr__(name: str) -> Any:
    """Import the clients when they are first named: handlers have no use for HTTP."""
    match name:
        case "AsyncClient":
            from penstock.client.asynchronous import AsyncClient  # noqa: PLC0415

            return AsyncClient
        case "Client":
            from penstock.client.synchronous import Client  # noqa: PLC0415

            return Client
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
