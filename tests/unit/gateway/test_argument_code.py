"""Code of an argument's class runs in the gateway: whatever it raises is the answer to its own request."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from penstock.engine.execute import Limits
from penstock.gateway.reader_pool import calls_with_code
from tests.gateway_thread import RunningGateway
from tests.unit.gateway.fussy_app import app
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a gateway."""
    with (
        RunningGateway(
            "tests.unit.gateway.fussy_app:app",
            tmp_path_factory.mktemp("boxes"),
            limits=Limits(wall_ms=2_000),
        ) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        assert client.post("/call/Box/a/create").status_code == 200
        yield client


@pytest.mark.parametrize("size", range(6))
@pytest.mark.parametrize(("method", "field"), [("put", "size"), ("model", "fussy")])
def test_exception_of_an_argument_refuses_its_request(
    boxes: httpx.Client, method: str, field: str, size: int
) -> None:
    """The caller gets status 400, and the gateway goes on."""
    answer = boxes.post(f"/call/Box/a/{method}", json=[{field: size}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request"), answer.text
    after = boxes.post(f"/call/Box/a/{method}", json=[{field: 7}])
    assert (after.status_code, after.json()) == (200, 7)


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("/call/Box/a/wait", "wait"),
        ("/call/Box/a/wait", "loop in C"),
        ("/call/Box/a/wait", "exit"),
        ("/boxes/a/way", "loop in C"),
        ("/call/Box/a/look", "exit"),
    ],
)
def test_code_that_never_returns_costs_its_request_only(
    boxes: httpx.Client, path: str, way: str
) -> None:
    """Other requests are answered meanwhile, and the caller gets `limit-exceeded`."""
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(boxes.post, path, json={"it": {"way": way}})
        plain = boxes.post("/call/Box/a/plain", json=[3])
        assert (plain.status_code, plain.json()) == (200, 3)
        refused = endless.result()
    assert refused.json()["error"]["code"] == "limit-exceeded", refused.text
    # On a busy machine, also a reader that only passes on the value may be too slow for the limit.
    wait_for(lambda: "through" in boxes.post(path, json={"it": {"way": "through"}}).text, "a value")


def test_arguments_without_code_are_read_at_once() -> None:
    """Only calls with such classes in their arguments go to another process."""
    assert calls_with_code(app) == {
        ("Box", name) for name in ("put", "wait", "way", "look", "model")
    }
