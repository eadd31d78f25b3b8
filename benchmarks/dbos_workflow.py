"""A call of a function as a durable workflow of DBOS Transact, on the PostgreSQL of the other ways.

The workflow's input and its result are rows of DBOS's tables, and the call is one of its transactions, which records
its result together with the changes. So a request that is sent again, or that a crash has interrupted, takes effect once,
as in Penstock. DBOS keeps its tables in a database of its own on the same server, as it does by default. Workflow and
transaction are plain functions in threads; as coroutines they gave half as many checkouts.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from dbos import DBOS, DBOSConfig, SetWorkflowID, SQLAlchemyDatasource
from psycopg import conninfo


@asynccontextmanager
async def durable(
    address: str, connections: int
) -> AsyncIterator[Callable[[str, tuple[Any, ...], str], Awaitable[Any]]]:
    """Give a function that runs a statement of one value as a workflow, whose id is that of the request.

    Args:
        address: The connection string of the application's database.
        connections: The number of threads, of connections for the application's tables, and of those for the tables of DBOS.
    """
    config: DBOSConfig = {
        "name": "peer",
        "system_database_url": url_of(address, "dbos"),
        "sys_db_pool_size": connections,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    pool = {"pool_size": connections, "max_overflow": 0}
    own = SQLAlchemyDatasource.create(url_of(address), pool)

    @own.transaction(isolation_level="READ COMMITTED")
    def call(statement: str, values: tuple[Any, ...]) -> Any:
        connection = own.sql_session().connection()
        return connection.exec_driver_sql(statement, tuple(values)).scalar_one()

    @DBOS.workflow()
    def perform(statement: str, values: tuple[Any, ...]) -> Any:
        return call(statement, values)

    def run(statement: str, values: tuple[Any, ...], request_id: str) -> Any:
        with SetWorkflowID(request_id):
            return perform(statement, values)

    DBOS.launch()
    with ThreadPoolExecutor(connections) as threads:
        yield lambda *request: asyncio.wrap_future(threads.submit(run, *request))
    DBOS.destroy()


def url_of(address: str, database: str | None = None) -> str:
    """Return the URL of a connection string, with another database if one is named."""
    parts = conninfo.conninfo_to_dict(address)
    name = database or parts.pop("dbname")
    return f"postgresql://{parts['user']}@/{name}?{urlencode({'host': parts['host']})}"
