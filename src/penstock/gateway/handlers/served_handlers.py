"""The handlers of a gateway: the router serves their routes, and the OpenAPI document describes them."""

from typing import NamedTuple

from penstock.gateway.handlers.at import PointHandler
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.changes import ChangesHandler
from penstock.gateway.handlers.deployments import DeploymentHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.exports import ExportHandler
from penstock.gateway.handlers.failed import FailedHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.load import LoadHandler
from penstock.gateway.handlers.pages import PageHandler
from penstock.gateway.handlers.reads import ReadHandler
from penstock.gateway.handlers.search import SearchHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.handlers.subscriptions import SubscriptionHandler
from penstock.gateway.handlers.tickets import TicketHandler


class ServedHandlers(NamedTuple):
    """The handlers of one version of the application."""

    calls: CallHandler
    reads: ReadHandler
    entity_reads: EntityReadHandler
    changes: ChangesHandler
    exports: ExportHandler
    pages: PageHandler
    failed: FailedHandler
    health: HealthHandler
    load: LoadHandler
    history: HistoryHandler
    streams: StreamHandler
    subscriptions: SubscriptionHandler
    tickets: TicketHandler
    deployments: DeploymentHandler
    sql: SqlHandler
    search: SearchHandler
    at: PointHandler


KINDS: tuple[type, ...] = tuple(ServedHandlers.__annotations__.values())
"""The classes of the handlers."""
