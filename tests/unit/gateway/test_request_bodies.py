"""The body of a request is whole, and is read with no more messages of the server than have its bytes."""

import asyncio
from typing import Any

import pytest

from penstock.errors import RequestError
from penstock.gateway.connections import ComingBodies
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest
from penstock.process.config import GatewayConfig


def body_of(
    headers: dict[str, str], *messages: tuple[bytes, bool]
) -> tuple[bytes | HttpError, int]:
    """Return the body, or the error, of a request whose server has these messages; and how many of them it was asked for."""
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked > len(messages):
            return {"type": "http.disconnect"}
        body, more = messages[asked - 1]
        return {"type": "http.request", "body": body, "more_body": more}

    pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "headers": pairs, "client": ("127.0.0.1", "1")}
    request = HttpRequest(scope, receive, GatewayConfig(body_bytes_max=16), ComingBodies())
    try:
        return asyncio.run(request.body()), asked
    except HttpError as error:
        return error, asked


LENGTH = {"content-length": "6"}
IN_PIECES = {"transfer-encoding": "chunked"}


@pytest.mark.parametrize(
    ("headers", "messages", "asked"),
    [
        (LENGTH, [(b"[1, 2]", True), (b"", False)], 1),
        (LENGTH, [(b"[1,", True), (b" 2]", True), (b"", False)], 2),
        (LENGTH, [(b"[1, 2]", False)], 1),
        (IN_PIECES, [(b"[1, 2]", True), (b"", False)], 2),
        (LENGTH | IN_PIECES, [(b"[1,", True), (b" 2]", True), (b"", False)], 3),
    ],
)
def test_a_whole_body_is_read_without_a_further_message(
    headers: dict[str, str], messages: list[tuple[bytes, bool]], asked: int
) -> None:
    """With a length, the last byte ends the body; without one, only the server's word does."""
    assert body_of(headers, *messages) == (b"[1, 2]", asked)


def test_no_body_is_waited_for_where_none_can_come() -> None:
    """A head without a length, or with the length 0, has no body."""
    assert body_of({}) == (b"", 0)
    assert body_of({"content-length": "0"}) == (b"", 0)


@pytest.mark.parametrize(
    ("headers", "messages", "status"),
    [
        (LENGTH, [(b"[1,", True)], 400),  # then the client is gone
        ({"content-length": "17"}, [], 413),
        (IN_PIECES, [(b"x" * 17, True)], 413),
    ],
)
def test_a_body_that_is_cut_or_too_large_is_refused(
    headers: dict[str, str], messages: list[tuple[bytes, bool]], status: int
) -> None:
    """Half a body is no body."""
    refused, asked = body_of(headers, *messages)
    assert isinstance(refused, HttpError)
    assert (refused.status, asked) == (status, len(messages) + (status == 400))


def test_each_body_has_its_own_time() -> None:
    """A body that does not come ends its task alone, at its time, whichever of them began first; its client has left the list."""

    async def wait(bodies: ComingBodies, client: str, limit_s: float) -> str:
        began_s = asyncio.get_running_loop().time()
        try:
            with bodies.within((client, "1"), limit_s):
                assert (client, "1") in bodies
                await asyncio.sleep(0 if client == "quick" else 60)
        except TimeoutError:
            assert asyncio.get_running_loop().time() - began_s >= limit_s
            assert (client, "1") not in bodies
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
            ended.append(client)
            return "late"
        return "whole"

    async def work() -> list[str]:
        bodies = ComingBodies()
        limits = {"slow": 0.06, "quick": 0.02, "dead": 0.02, "other": 0.04}
        return await asyncio.gather(*(wait(bodies, *each) for each in limits.items()))

    ended: list[str] = []
    assert asyncio.run(work()) == ["late", "whole", "late", "late"]
    assert ended == ["dead", "other", "slow"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_task_that_is_cancelled_while_its_body_comes_stays_cancelled(is_late: bool) -> None:  # noqa: FBT001
    """The client has left, or the gateway ends: that is no missing body, also if its time is up at the same moment."""

    async def receive(bodies: ComingBodies) -> None:
        with bodies.within(("client", "1"), 0.0 if is_late else 60.0):
            await asyncio.sleep(60)

    async def work() -> None:
        bodies = ComingBodies()
        task = asyncio.ensure_future(receive(bodies))
        await asyncio.sleep(0)
        if is_late:
            bodies._end_late()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ("client", "1") not in bodies

    asyncio.run(work())


def test_a_header_that_only_looks_like_one_of_penstock_is_refused() -> None:
    """It would be ignored; headers of answers, of the console and of others are none of a caller's mistakes."""
    body_of({"penstock-epoch": "7", "penstock-console": "kill", "x-penstock-delay": "5"})
    known = "there are Penstock-Min-Epoch, Penstock-Request-Id"
    with pytest.raises(RequestError, match=f"there is no header Penstock-Delay; {known}"):
        body_of({"penstock-delay": "5"})
