"""One PostgreSQL server for all tests of a process; each test has schemas, or a database, of its own."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.cluster import Cluster, running_cluster

PASSWORD: Final = "se:cr%t/wörd"
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # no test takes the power away
    "shared_buffers": "32MB",
    "max_connections": "40",
    "log_min_messages": "fatal",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "40",
}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """Start a server; without PostgreSQL, skip the tests that need it, but fail if CI is set."""
    from benchmarks.harness.ports import free_port  # noqa: PLC0415 -- as below

    settings = SETTINGS | {"port": str(free_port("127.0.0.1"))}
    try:
        # The server has a user of its own, who must be able to enter the directory.
        with running_cluster(Path("/var/tmp"), settings) as cluster:
            yield cluster
    except FileNotFoundError as error:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(error))


@pytest.fixture(scope="session")
def login(postgres: Cluster) -> str:
    """Return the connection string of a user who needs a password, and owns the schema `desk` alone."""
    import psycopg  # noqa: PLC0415 -- every run of tests loads this module

    rules = postgres.socket / "data" / "pg_hba.conf"
    mode = rules.stat().st_mode
    rules.write_text(f"host all clerk 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    rules.chmod(mode)
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE ROLE clerk LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute("CREATE SCHEMA desk AUTHORIZATION clerk")
    return f"postgresql://clerk:se%3Acr%25t%2Fw%C3%B6rd@127.0.0.1:{postgres.port}/postgres"
