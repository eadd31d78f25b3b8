# Written by scripts/twins from asynchronous_queries.py: change that file, then run the script.
"""`Queries`: the operations of a client that look at state and history, and change nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.client.protocol import GatewayProtocol
from penstock.client.results import Change, Rows, SqlQuery
from penstock.client.synchronous_pool import ConnectionPool

if TYPE_CHECKING:
    import pyarrow as pa


class Queries:
    """The part of `Client` that reads entities, changes, history and SQL."""

    _pool: ConnectionPool
    _protocol: GatewayProtocol

    def get(self, entity: str, key: object) -> dict[str, Any]:
        """Return the attributes of an entity with its key, as of the newest epoch.

        Raises:
            NoSuchEntity: The entity does not exist.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: The gateway could not answer.
        """
        return self._pool.run(self._protocol.get(entity, key))

    def changes(self, entity: str, from_epoch: int, to_epoch: int | None = None) -> list[Change]:
        """Return the changes of all entities of a class, in the order of their epochs.

        Args:
            entity: The name of the class.
            from_epoch: The first epoch.
            to_epoch: The last epoch, which is included; None: the newest.

        Returns:
            One change for each entity and epoch that changed it.

        Raises:
            RequestError: The application has no such class.
            PenstockError: The journal does not hold these epochs, or could not be read.
        """
        return self._pool.run(self._protocol.changes(entity, from_epoch, to_epoch))

    def trace(self, request_id: str) -> dict[str, Any]:
        """Return how a request ran: its calls, its reads and changes, its place in the order.

        The gateway runs the request again for that, which takes seconds; docs/HISTORY.md describes
        the fields.

        Raises:
            PenstockError: No request has this id, or too many traces are being made.
        """
        return self._pool.run(self._protocol.trace(request_id))

    def history(
        self,
        entity: str,
        key: object,
        last: int = 20,
        *,
        from_epoch: int | None = None,
        to_epoch: int | None = None,
    ) -> dict[str, Any]:
        """Return the newest changes of an entity, each with the request that made it.

        Args:
            entity: The name of the class.
            key: The entity's key.
            last: The most changes to return.
            from_epoch: The first epoch to look at; None: the oldest that is held.
            to_epoch: The last epoch to look at, which is included; None: the newest.

        Returns:
            The fields that docs/HISTORY.md describes.

        Raises:
            NoSuchEntity: No epoch that is held changed such an entity.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: The gateway could not answer.
        """
        return self._pool.run(self._protocol.history(entity, key, last, from_epoch, to_epoch))

    def rows(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> Rows:
        """Return the rows of a SELECT over one epoch, as plain values.

        Args:
            query: The SELECT.
            parameters: The values for its `?` by position, or for its `$name` by name.
            rows_max: A result with more rows is refused.
            as_of: Query this epoch, or the newest epoch at this instant; None: the newest.

        Returns:
            The rows, their columns and their epoch.

        Raises:
            PenstockError: The query is refused, or could not be answered.
        """
        return self._pool.run(self._protocol.rows(SqlQuery(query, parameters, rows_max, as_of)))

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> "pa.Table":
        """Return the rows of a SELECT over one epoch, as an Arrow table.

        Args:
            query: The SELECT.
            parameters: The values for its `?` by position, or for its `$name` by name.
            rows_max: A result with more rows is refused.
            as_of: Query this epoch, or the newest epoch at this instant; None: the newest.

        Returns:
            The table; the metadata of its schema has the epoch as `penstock.epoch`.

        Raises:
            ConfigError: pyarrow is not installed.
            PenstockError: The query is refused, or could not be answered.
        """
        return self._pool.run(self._protocol.table(SqlQuery(query, parameters, rows_max, as_of)))
