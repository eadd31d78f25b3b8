"""Code of an argument's class runs in the gateway: whatever it raises is the answer to its own request."""

from collections.abc import Iterator

import httpx
import pytest

from tests.gateway_thread import RunningGateway


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a gateway."""
    with (
        RunningGateway(
            "tests.unit.gateway.fussy_app:app", tmp_path_factory.mktemp("boxes")
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
