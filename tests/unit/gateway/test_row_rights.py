"""Rights per row through a gateway: calls, reads, entities and pages of a class with `allows`."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Client, Forbidden, RequestError
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway

APP = """\
from datetime import date
from decimal import Decimal
from enum import Enum

from penstock import App, Entity, Principal, key, publish, readonly, route


class State(Enum):
    NEW = "new"
    SEEN = "seen"


class Doctor(Entity):
    name: str = key()


@route("GET /patients/{patient_id}")
class Patient(Entity):
    patient_id: str = key()
    doctor: Doctor
    born: date = date(2000, 1, 2)
    weight: Decimal = Decimal("70.5")
    state: State = State.NEW
    ward: int | None = None
    tags: list[str] = []

    def allows(self, principal: Principal) -> bool:
        if self.patient_id == "odd":
            raise ValueError(f"the secret of {self.doctor}")
        return self.doctor == Doctor(principal.id)

    @readonly
    @route("GET /patients/{patient_id}/ward")
    def where(self) -> int | None:
        return self.ward

    def move(self, ward: int) -> int:
        self.ward = ward
        return ward


class Paper(Entity):
    number: int = key()
    text: str = ""


app = App("ward", Doctor, Patient, Paper, publish(Patient))
"""
PATIENTS = [f"p{number:02}" for number in range(20)]


class Ward:
    """The gateway of the application, as the owner of each key sees it."""

    def __init__(self, http: httpx.Client, keys: dict[str, str]) -> None:
        self._http = http
        self.keys = keys
        self.url = str(http.base_url)

    def ask(self, who: str, verb: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"X-API-Key": self.keys[who]}
        return self._http.request(verb, path, json=body, headers=headers)

    def get(self, who: str, path: str) -> Any:
        answer = self.ask(who, "GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, who: str, verb: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = self.ask(who, verb, path, body)
        error = answer.json()["error"]
        assert error["code"] in ("forbidden", "request", "no-such-entity"), error
        return answer.status_code, error["message"]


def stored_keys(data: Path) -> dict[str, str]:
    store, now = KeyStore(data), datetime.now(UTC)
    data.mkdir()
    scopes = {
        "ada": ["call", "read", "follow"],
        "bob": ["call", "read"],
        "reader": ["read", "sql"],
        "owner": ["*"],
    }
    return {name: store.add(name, granted(each), None, now)[1] for name, each in scopes.items()}


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    folder = tmp_path_factory.mktemp("ward")
    (folder / "ward.py").write_text(APP)
    keys = stored_keys(folder / "data")
    with (
        RunningGateway(str(folder / "ward.py"), folder / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        ward = Ward(http, keys)
        for name in ("ada", "bob"):
            assert ward.ask("owner", "POST", f"/call/Doctor/{name}/create").status_code == 200
        for number, name in enumerate(PATIENTS):
            doctor = "ada" if number % 3 else "bob"
            body = {"doctor": doctor, "ward": number % 2, "state": "seen" if number < 10 else "new"}
            answer = ward.ask(doctor, "POST", f"/call/Patient/{name}/create", body)
            assert answer.status_code == 200, answer.text
        for number in (10, 9, 100):
            assert ward.ask("ada", "POST", f"/call/Paper/{number}/create").status_code == 200
        yield ward


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("POST", "/call/Patient/p00/move", [1]),
        ("POST", "/send/Patient/p00/move", [1]),
        ("POST", "/call/Patient/p00/where", None),
        ("POST", "/call/Patient/p00/delete", None),
        ("POST", "/call/Patient/p00/upsert", {"doctor": "ada"}),
        ("POST", "/call/Patient/new/create", {"doctor": "bob"}),
        ("GET", "/patients/p00/ward", None),
        ("GET", "/patients/p00", None),
        ("GET", "/entities/Patient/p00", None),
    ],
)
def test_a_row_of_another_is_refused(ward: Ward, verb: str, path: str, body: Any) -> None:
    """Each way to the row is refused with class and key; what is only sent fails in the log."""
    answer = ward.ask("ada", verb, path, body)
    if path.startswith("/send"):
        answer = ward.ask("ada", "GET", f"/requests/{answer.json()['request_id']}?wait=30")
        error = answer.json()["error"]
    else:
        assert answer.status_code == 403
        error = answer.json()["error"]
    key = "new" if "/new/" in path else "p00"
    assert error == {
        "code": "forbidden",
        "kind": "Forbidden",
        "message": f"ada may not use Patient '{key}'",
    }


def test_an_own_row_is_served(ward: Ward) -> None:
    """Calls, reads and entities of an own row work as without a right."""
    assert ward.ask("ada", "POST", "/call/Patient/p01/move", [1]).json() == 1
    assert ward.get("ada", "/patients/p01/ward") == 1
    shown = ward.get("ada", "/entities/Patient/p01")
    assert (shown["patient_id"], shown["doctor"]) == ("p01", "ada")


def test_pages_show_exactly_what_one_may_see(ward: Ward) -> None:
    """Pages of any size have the rows of the caller in the order of their keys; the place of the next page is one of them."""
    mine = [name for number, name in enumerate(PATIENTS) if number % 3]
    for limit in (1, 3, 7, 13, 100):
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = ward.get("ada", f"/entities/Patient?limit={limit}&after={after}")
            keys = [each["patient_id"] for each in page["entities"]]
            seen += keys
            after = page["after"]
            assert len(keys) <= limit
            assert after is None or after == keys[-1]
            assert page["epoch"] >= 0
        assert seen == mine
    assert ward.get("owner", "/entities/Patient")["entities"] == []
    assert [each["number"] for each in ward.get("ada", "/entities/Paper")["entities"]] == [
        10,
        100,
        9,
    ]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("doctor=ada", 13),
        ("doctor=bob", 0),
        ("state=seen", 6),
        ("state=seen&ward=1", 3),
        ("ward=null", 0),
        ("born=2000-01-02", 13),
        ("weight=70.5", 13),
    ],
)
def test_filters_compare_typed_values(ward: Ward, query: str, count: int) -> None:
    """A filter is read as the type of its attribute, and never shows a row of another."""
    assert len(ward.get("ada", f"/entities/Patient?{query}")["entities"]) == count


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("owner=ada", "there is no attribute of Patient 'owner'"),
        ("ward=x", "Patient.ward: 'x' is no int | None"),
        ("state=old", "Patient.state: 'old' is no State"),
        ("tags=a", "Patient.tags: list[str] has no filter"),
        ("limit=0", "limit=0 is not the size of a page"),
        ("limit=1001", "limit=1001 is not the size of a page"),
        ("ward=1&ward=0", "ward stands twice"),
    ],
)
def test_a_wrong_filter_is_refused_by_name(ward: Ward, query: str, why: str) -> None:
    """No filter is ignored."""
    status, message = ward.refused("ada", "GET", f"/entities/Patient?{query}")
    assert (status, message[: len(why)]) == (400, why)


def test_ways_around_the_right_need_the_scope_sql(ward: Ward) -> None:
    """Files and former rows of a class with a right need `sql`; a class without one needs `read`."""
    for path in ("/export/Patient", "/entities/Patient/changes?from=0"):
        status, message = ward.refused("ada", "GET", path)
        assert (status, message.partition(":")[0]) == (403, "ada lacks the scope sql")
    assert ward.ask("ada", "GET", "/export/Paper").status_code != 403
    assert ward.ask("reader", "GET", "/export/Patient").status_code != 403


def test_a_right_that_fails_shows_nothing(ward: Ward) -> None:
    """The text of its exception could show the row; the row is in no page."""
    answer = ward.ask("ada", "POST", "/call/Patient/odd/create", {"doctor": "ada"})
    assert answer.status_code == 403
    assert (
        answer.json()["error"]["message"]
        == "ada may not use Patient 'odd'; allows raised ValueError"
    )


def test_client_gets_copies(ward: Ward) -> None:
    """A client gets an entity by its reference, and pages with typed filters."""
    spec = sys.modules["ward"]
    with Client(ward.url, spec.app, key=ward.keys["ada"]) as client:
        copy = client.get(spec.Patient("p01"))
        assert (copy.doctor, copy.weight, copy.state) == (
            spec.Doctor("ada"),
            Decimal("70.5"),
            spec.State.SEEN,
        )
        assert client.get("Patient", copy)["patient_id"] == "p01"
        where = {
            "doctor": copy.doctor,
            "state": copy.state,
            "born": copy.born,
            "weight": copy.weight,
        }
        page = client.page(spec.Patient, where=where, limit=4)
        assert [each.patient_id for each in page.entities] == ["p01", "p02", "p04", "p05"]
        rest = client.page(spec.Patient, where=where, after=page.after or "")
        assert ([each.patient_id for each in rest.entities], rest.after) == (["p07", "p08"], None)
        with pytest.raises(RequestError, match="limit, which is a field of the page"):
            client.page(spec.Patient, where={"limit": 1})
        with pytest.raises(Forbidden, match="ada may not use Patient 'p00'"):
            client.get(spec.Patient("p00"))


def test_an_application_without_readonly_handlers_has_pages(tmp_path: Path) -> None:
    """Readers find the rows of pages and ask rights, also if the application has no handler for them."""
    source = tmp_path / "plain_ward.py"
    source.write_text(
        "from penstock import App, Entity, Principal, key\n\n\n"
        "class Note(Entity):\n    name: str = key()\n    owner: str\n\n"
        "    def allows(self, principal: Principal) -> bool:\n        return principal.id == self.owner\n\n\n"
        'app = App("plain", Note)\n'
    )
    keys = stored_keys(tmp_path / "data")
    with (
        RunningGateway(str(source), tmp_path / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        ward = Ward(http, keys)
        assert ward.ask("ada", "POST", "/call/Note/n1/create", {"owner": "ada"}).status_code == 200
        assert ward.get("ada", "/entities/Note/n1") == {"name": "n1", "owner": "ada"}
        assert len(ward.get("ada", "/entities/Note")["entities"]) == 1
        assert ward.get("bob", "/entities/Note")["entities"] == []


def test_without_readers_no_right_is_skipped(tmp_path: Path) -> None:
    """A gateway without readers cannot ask a right, so it refuses to show the row."""
    (tmp_path / "bare_ward.py").write_text(APP)
    keys = stored_keys(tmp_path / "data")
    settings = GatewayConfig(readers=0)
    with (
        RunningGateway(str(tmp_path / "bare_ward.py"), tmp_path / "data", settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        ward = Ward(http, keys)
        body = {"doctor": "ada"}
        assert ward.ask("owner", "POST", "/call/Doctor/ada/create").status_code == 200
        assert ward.ask("ada", "POST", "/call/Patient/p1/create", body).status_code == 200
        for path in ("/entities/Patient/p1", "/entities/Patient"):
            status, message = ward.refused("bob", "GET", path)
            assert (status, message[:27]) == (400, "this gateway has no readers")
