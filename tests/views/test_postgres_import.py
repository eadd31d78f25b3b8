"""A table of a real PostgreSQL is imported, with the values that the database has."""

from pathlib import Path

import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock.base.ids import EntityKey
from penstock.errors import RequestError
from tests.differential.test_imports import Bulk

TABLE = """
    CREATE SCHEMA crm;
    CREATE TABLE crm.items (
        item_id varchar PRIMARY KEY, price numeric(12, 2), stock bigint, tags jsonb, since date, maker text
    );
    INSERT INTO crm.items
    SELECT 'i' || n, n + 0.5, n, '["a", "b"]', '2026-01-31', (n % 3)::text FROM generate_series(1, 30) AS n;
"""


@pytest.fixture(scope="module")
def address(postgres: Cluster) -> str:
    """Return the URL of a database with a table of items."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute(TABLE.encode())
    return f"postgresql://{psycopg.conninfo.conninfo_to_dict(postgres.address).get('user', 'postgres')}@/postgres?host={postgres.socket}&port={postgres.port}"


def test_a_table_becomes_entities(address: str, tmp_path: Path) -> None:
    """Numbers, dates, JSON documents and references keep their values."""
    data = tmp_path / "data"
    data.mkdir()
    bulk = Bulk(data)
    report = bulk.order(address, table="crm.items")
    assert (report.outcome, report.rows) == ("waits", 30)
    bulk.advance()
    state = bulk.state()
    item = bulk.app.entities["Item"].decode("i7", state[EntityKey("Item/i7")])
    shown = (str(item["price"]), item["stock"], item["tags"], str(item["since"]))
    assert shown == ("7.50", 7, ["a", "b"], "2026-01-31")
    assert len(state) == 30
    bulk.inline.close()


@pytest.mark.parametrize(
    ("table", "text"),
    [("crm.nothing", "does not exist"), ("", "name the table"), ("a b", "cannot name a table")],
)
def test_a_table_that_cannot_be_read_is_refused(
    address: str, tmp_path: Path, table: str, text: str
) -> None:
    """The message says why, and nothing is written."""
    data = tmp_path / "data"
    data.mkdir()
    bulk = Bulk(data)
    with pytest.raises(RequestError, match=text):
        bulk.order(address, table=table)
    with pytest.raises(RequestError, match="PGPASSWORD"):
        bulk.order("postgresql://ada:secret@127.0.0.1/crm", table="items")
    assert bulk.inline.log.end() == 0
    bulk.inline.close()
