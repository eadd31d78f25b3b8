"""Indexes, effects and the changes of a database on a cluster whose hosts hold parts of the state, while an executor dies.

Three applications run as one: the library finds by indexes, the agency books trips by effects, and users follow a table of PostgreSQL.
`scripts/cluster --parts outside` runs it.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import psycopg

from benchmarks.cluster import Cluster, running_cluster
from tests.captures.office import SPEC as CRM
from tests.captures.office import USERS
from tests.checkout import TOP
from tests.cluster.lab import Lab
from tests.cluster.running import RunningApplication
from tests.postgres_server import SETTINGS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.cluster.campaign import Report

APPS: Final = (*(str(TOP / "examples" / name) for name in ("library", "travel")), str(TOP / CRM))
PROVIDER: Final = 8700
TRIPS: Final = 8
COPIES: Final = 4
ROWS: Final = 50
BOUND_S: Final = 60.0
OK, TAKEN = 200, 409


class Outside:
    """The three applications, whose outcomes are known."""

    def __init__(self, hosts: Lab, report: "Report") -> None:
        self._lab = hosts
        self._report = report
        secrets = hosts.top / "secrets"
        secrets.write_text(f"TRAVEL_URL=http://127.0.0.1:{PROVIDER}\n")
        secrets.chmod(0o600)
        provider = [sys.executable, "-m", "examples.travel.provider", str(PROVIDER)]
        hosts.hosts[0].start(provider, hosts.top / "run-of-provider.log")
        # Its socket is a file, which all hosts see.
        self._server = running_cluster(Path("/var/tmp"), SETTINGS | {"listen_addresses": ""})
        self._database: Cluster = self._server.__enter__()
        self._sql(USERS)
        self._sql("CREATE PUBLICATION crm FOR TABLE users")
        self._sql(f"INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, {ROWS}) n")
        address = hosts.top / "address"
        address.write_text(self._database.address)
        address.chmod(0o600)
        count = len(hosts.hosts) - 1
        settings: dict[str, Any] = {
            "copies": min(2, count),
            "effects.secrets": secrets,
            "captures.crm.url_file": address,
            "captures.crm.publication": "crm",
        }
        self._running = RunningApplication(
            hosts, apps=APPS, at=0, partitions=4 * count, small_epoch=1, **settings
        )
        self._running.await_tasks(count)

    def run(self, rounds: int) -> None:
        """Let all of them work, kill an executor each round, and compare what is there at the end with what must be."""
        try:
            for number in range(rounds):
                self._running.call(lambda client: self._round(client, number))  # noqa: B023
            self._running.stop()
        finally:
            self._server.__exit__(None, None, None)

    def _round(self, client: httpx.Client, number: int) -> None:
        trips = [
            {"trip_id": f"{number}-{trip}", "customer": "poor" if trip % 4 == 3 else "ada",
             "place": "full" if trip % 4 == 1 else "rome", "day": "monday", "cents": 100}
            for trip in range(TRIPS)
        ]  # fmt: skip
        for customer in ("ada", "poor") if number == 0 else ():
            _posted(client, f"/call/Customer/{customer}/create", {})
            _posted(client, f"/call/Member/{customer}/create", {"email": f"{customer}@example.org"})
        _posted(client, "/streams/trips", trips)
        for executor in self._lab.hosts[1].executors():
            executor.kill()
        self._lend(client, number)
        self._sql(f"UPDATE users SET name = 'round {number}' WHERE id % 2 = 0")
        began = time.monotonic()
        wait_for(
            lambda: _told(client) == {"ada": (2 * number + 2) * TRIPS // 4, "poor": 0}, "trips"
        )
        self._report.say("all trips are booked or undone", time.monotonic() - began, BOUND_S)
        wait_for(lambda: _named(client, f"round {number}") == ROWS // 2, "the changes")
        self._report.say("all changes of the table are taken", time.monotonic() - began, BOUND_S)
        self._running.await_tasks(1)

    def _lend(self, client: httpx.Client, number: int) -> None:
        """Lend each copy twice, of which the second time is refused, and find the loans by their member."""
        answers = []
        for copy in range(COPIES):
            asked = {"email": "ada@example.org", "copy": f"{number}-{copy // 2}"}
            answers.append(client.post("/call/lend", json=asked))
        statuses = [answer.status_code for answer in answers]
        assert statuses == [OK, TAKEN] * (COPIES // 2), [answer.text for answer in answers]
        found = client.post("/call/overdue", json={"email": "ada@example.org", "day": "2100-01-01"})
        lent = found.json()
        assert sorted(lent) == [f"{number}-{copy}" for copy in range(COPIES // 2)], lent
        for answer in answers[::2]:
            _posted(client, f"/call/Loan/{answer.json()}/give_back", {})

    def _sql(self, text: str) -> None:
        with psycopg.connect(self._database.address, autocommit=True) as connection:
            connection.execute(text.encode())


def _posted(client: httpx.Client, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == OK, f"{path}: {answer.text}"
    return answer.json()


def _told(client: httpx.Client) -> dict[str, int]:
    """Return the number of trips of each customer that are booked."""
    rows = {name: client.get(f"/entities/Customer/{name}").json() for name in ("ada", "poor")}
    return {name: len(row["bookings"]) for name, row in rows.items()}


def _named(client: httpx.Client, name: str) -> int:
    """Return the number of users with a name."""
    answers = [client.get(f"/entities/User/{number}") for number in range(1, ROWS + 1)]
    return sum(answer.status_code == OK and answer.json()["name"] == name for answer in answers)
