"""`GET /entities` of rows of an earlier schema version: functions with `@migrate` are user code, and cost their request."""

import textwrap
from collections.abc import Iterator

import httpx
import pytest

from penstock.engine.execute import Limits
from tests.gateway_thread import RunningGateway
from tests.history import Call, journal_of

BEFORE = """
    from penstock import App, Entity, key

    class Parcel(Entity):
        name: str = key()
        grams: int

    app = App("post", Parcel)
"""
AFTER = """
    import os
    from penstock import App, Entity, key, migrate

    class Parcel(Entity):
        name: str = key()
        kilograms: float

    @migrate(Parcel, since=2)
    def in_kilograms(old):
        match old["name"]:
            case "endless":
                while True:
                    pass
            case "ends":
                os._exit(1)
            case "raises":
                raise SystemExit(1)
        return {"kilograms": old["grams"] / 1000}

    app = App("post", Parcel, in_kilograms)
"""
NAMES = ["good", "endless", "ends", "raises"]


@pytest.fixture(scope="module")
def parcels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Store parcels with the former code, and serve them with the changed code."""
    folder = tmp_path_factory.mktemp("parcels")
    made: list[Call] = [("Parcel", name, "create", {"grams": 1_500}) for name in NAMES]
    for name, text in (("post_before", BEFORE), ("post_after", AFTER)):
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    journal_of(str(folder / "post_before.py"), folder / "data", [made])
    with (
        RunningGateway(
            str(folder / "post_after.py"), folder / "data", limits=Limits(wall_ms=2_000)
        ) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("endless", 400, "limit-exceeded"),
        ("ends", 400, "limit-exceeded"),
        ("raises", 500, "migration-failed"),
    ],
)
def test_function_costs_its_request_only(
    parcels: httpx.Client, name: str, status: int, code: str
) -> None:
    """The caller gets the reason, and other entities are read as before and after."""
    for _ in range(2):
        good = parcels.get("/entities/Parcel/good")
        assert good.json() == {"name": "good", "kilograms": 1.5}
        answer = parcels.get(f"/entities/Parcel/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


def test_data_directory_is_not_changed(parcels: httpx.Client) -> None:
    """A gateway deploys nothing: the driver does it, and until then rows are converted at each read."""
    assert parcels.get("/entities/Parcel/good").status_code == 200
    assert parcels.get("/entities/Parcel/none").status_code == 404
