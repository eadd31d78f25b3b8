"""Clients against a real gateway: which calls arrive, how often they take effect, and their results."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock import (
    Aborted,
    AlreadyExists,
    AsyncClient,
    Client,
    NoSuchEntity,
    RequestError,
)
from penstock.errors import PenstockError, RequestConflict, TimedOut, Unreachable
from penstock.model.call import Calling
from penstock.testing import Kit
from tests.gateway_thread import Meddler, Meddling, RunningGateway
from tests.unit.client.all_types_app import EVERYTHING, Coat, Fabric, Hook, app
from tests.waiting import wait_for

SILK = Fabric("silk", Decimal("1.10"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(
        "tests.unit.client.all_types_app:app", tmp_path_factory.mktemp("wardrobe")
    ) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url, app) as one:
        yield one


@pytest.fixture
def plain(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as one:
        yield one


@pytest.fixture
def meddler(gateway: RunningGateway) -> Iterator[Meddler]:
    with Meddler(urlsplit(gateway.url).port or 0) as one:
        yield one


NUMBERS = iter(range(10_000))


def new_coat(client: Client) -> int:
    number = next(NUMBERS)
    client.Coat.create(number)
    return number


def test_values_arrive_and_come_back_as_they_were(client: Client) -> None:
    """Every type of value survives both ways, types and all."""
    answer = client.echo(EVERYTHING)
    assert answer == EVERYTHING
    assert list(map(type, answer)) == list(map(type, EVERYTHING))
    assert client.anything([b"\xff", {"a": (1, None)}]) == [b"\xff", {"a": [1, None]}]


def test_references_are_references(client: Client) -> None:
    """A call that creates or returns an entity gives its reference, and calls take references as keys."""
    left, right = client.Coat.create(next(NUMBERS)), Coat(next(NUMBERS))
    assert isinstance(left, Coat)
    assert client.Coat.create(right.number) == right
    assert client.Coat(left).pair(right) == right
    assert client.Coat(right).wear(3) == client.Coat(left).twin_worn() == 3
    assert client.hang_up("h", [left, right]) == Hook("h")
    assert client.get("Hook", "h") == {"name": "h", "holds": [left, right]}


def test_key_may_hold_anything(client: Client) -> None:
    """Keys with slashes, dots and other signs reach their entity and no other."""
    for name in ("a/b", "..", ".", "é?x=1#", "%2F", "-x", "a b"):
        assert client.Hook.create(name) == Hook(name)
        assert client.Hook.exists(name)
        assert client.get("Hook", name)["name"] == name
    assert not client.Hook.exists("a")
    assert not client.Hook.exists("-")


def perform(call: Calling) -> list[Any]:
    """Make calls that succeed and calls that fail; return the outcome of each."""
    coat = call.Coat(9_999)
    steps: list[Callable[[], Any]] = [
        lambda: call.Coat.create(9_999, worn=2),
        lambda: call.Coat.create(9_999),
        lambda: coat.wear(3),
        lambda: coat.wear(-1),
        lambda: coat.wear(times=4),
        lambda: coat.wear("3"),
        lambda: coat.line(b"\xff", fabric=SILK),
        lambda: coat.pair(Coat(9_998)),
        lambda: coat.twin_worn(),
        lambda: coat.fly(),
        lambda: call.Glove("left"),
        lambda: coat.exists(),
        lambda: coat.delete(),
        lambda: coat.wear(),
        lambda: call.Coat.exists(9_999),
        lambda: call.anything({1, 2}),
    ]
    found: list[Any] = []
    for step in steps:
        try:
            found.append(step())
        except PenstockError as error:
            found.append((type(error), error.kind, str(error)))
    return found


def test_call_is_the_same_over_http(client: Client) -> None:
    """Results and errors, with classes, kinds and messages, are those of a runtime in process."""
    assert perform(client.call) == perform(Kit(app).call)


def test_errors_are_typed(client: Client) -> None:
    """An error has the class of its code, and the name of the exception that the handler raised."""
    number = new_coat(client)
    with pytest.raises(AlreadyExists):
        client.Coat.create(number)
    with pytest.raises(NoSuchEntity):
        client.Coat(next(NUMBERS)).wear()
    with pytest.raises(Aborted, match=f"TornError: coat {number}") as caught:
        client.Coat(number).wear(-1)
    assert caught.value.kind == "TornError"
    with pytest.raises(RequestError):
        client.pending("never-sent").result()
    with pytest.raises(NoSuchEntity):
        client.get("Coat", next(NUMBERS))


def test_client_without_the_application_speaks_json(plain: Client) -> None:
    """Without the application calls look the same; values and results are JSON."""
    number = next(NUMBERS)
    assert plain.Coat.create(number, worn=2, lining=b"ab") == str(number)
    assert plain.Coat(number).wear(times=3) == plain.Coat(number).wear(0) == 5
    assert plain.Coat(number).line(b"\xff", SILK) == {"name": "silk", "price": "1.10"}
    assert plain.get("Coat", number)["lining"] == "/w=="
    assert plain.anything([1, {"a": None}]) == [1, {"a": None}]
    assert plain.Hook.exists(plain.Hook.create())
    with pytest.raises(Aborted, match="TornError"):
        plain.Coat(number).wear(-1)
    with pytest.raises(NoSuchEntity):
        plain.Coat(next(NUMBERS)).wear()
    with pytest.raises(RequestError, match="wear"):
        plain.Coat(number).wear("much")
    with pytest.raises(RequestError):
        plain.Glove("left").wear()
    sent = plain.send(plain.prepare.Coat(number).wear(-2))
    with pytest.raises(Aborted, match="TornError"):
        sent.result()


def test_read_has_the_types_of_the_attributes(client: Client) -> None:
    """An entity that is read has its attributes as they were declared."""
    number = new_coat(client)
    client.Coat(number).line(b"\x00\xff", SILK)
    client.Coat(number).pair(Coat(number))
    assert client.get("Coat", number) == {
        "number": number,
        "worn": 0,
        "fabric": SILK,
        "lining": b"\x00\xff",
        "twin": Coat(number),
    }
    assert client.epoch >= 0


@pytest.mark.parametrize(
    "trouble",
    [[one] for one in Meddling if one is not Meddling.SILENCE]
    + [[Meddling.CUT_AFTER, Meddling.BUSY, Meddling.CUT_BEFORE, Meddling.CUT_AFTER]],
    ids=lambda trouble: "-".join(one.name for one in trouble),
)
def test_request_takes_effect_once_through_a_bad_network(
    meddler: Meddler, trouble: list[Meddling]
) -> None:
    """Whether the question or the answer was lost, the effect is there once, and so is the answer."""
    with Client(meddler.url, app) as client:
        number = new_coat(client)
        meddler.then.extend(trouble)
        assert client.Coat(number).wear(5) == 5
        assert meddler.requests == 2 + len(trouble)
        assert client.Coat(number).wear(0) == 5


def test_answer_comes_from_another_gateway(gateway: RunningGateway, meddler: Meddler) -> None:
    """When the gateway that took a request goes, another one gives the answer, to one effect."""
    data = gateway.config.data
    with (
        RunningGateway("tests.unit.client.all_types_app:app", data, drives=False) as other,
        Client(meddler.url, app) as client,
    ):
        number = new_coat(client)
        meddler.then.append(Meddling.CUT_AFTER)
        meddler.target = urlsplit(other.url).port or 0
        assert client.Coat(number).wear(5) == 5
        assert client.Coat(number).wear(0) == 5


def test_time_out_names_a_request_that_can_be_asked_again(meddler: Meddler) -> None:
    """A caller without an answer gets the request id, and learns the outcome with it."""
    with Client(meddler.url, app) as client, Client(meddler.url, app, timeout_s=0.5) as hurried:
        number = new_coat(client)
        meddler.then.append(Meddling.SILENCE)
        with pytest.raises(TimedOut, match="request_id='fix'"):
            hurried.Coat(number).wear(5, request_id="fix")
        # On a busy machine, the request arrives after that: the silence is for it, not for the next one.
        wait_for(lambda: not meddler.then, "the request")
        assert client.Coat(number).wear(5, request_id="fix") == 5
        assert client.pending("fix", int).result() == 5
        assert client.Coat(number).wear(0) == 5


def test_request_id_is_one_request(client: Client) -> None:
    """The same id always has the same answer; with another body it is refused."""
    number = new_coat(client)
    assert client.Coat(number).wear(5, request_id="one") == 5
    client.Coat(number).wear(1)
    assert client.Coat(number).wear(5, request_id="one") == 5
    with pytest.raises(RequestConflict):
        client.Coat(number).wear(6, request_id="one")


def test_nobody_there_is_unreachable(gateway: RunningGateway) -> None:
    """If no gateway listens, the error says so, and where."""
    with Meddler(1) as gone:
        url = gone.url
    with (
        Client(url, app, retries=1) as client,
        pytest.raises(Unreachable, match=f"{url}: could not connect, 2 times"),
    ):
        client.Coat(1).wear()


def test_sent_call_has_its_result_later(client: Client) -> None:
    """A call that was sent is durable at once, is performed once, and its result is typed."""
    number = new_coat(client)
    sent = client.send(client.prepare.Coat(number).line(b"a", SILK))
    assert sent.result() == sent.result() == SILK
    assert sent.done()
    assert client.pending(sent.request_id, Fabric).result() == SILK
    torn = client.send(client.prepare.Coat(number).wear(-1))
    with pytest.raises(Aborted, match="TornError"):
        torn.result()


def test_unknown_request_is_an_error(client: Client) -> None:
    """A request that the gateway does not know is not done, and a request that failed is done."""
    with pytest.raises(RequestError, match="no request has the id nope"):
        client.pending("nope").done()
    missing = client.send(client.prepare.Coat(10_000_000).wear(1))
    with pytest.raises(NoSuchEntity):
        missing.result()
    assert missing.done()


def test_bulk_keeps_the_order(client: Client) -> None:
    """Many calls at once give their results in order, and errors in their places."""
    numbers = client.bulk([client.prepare.Coat.create(next(NUMBERS)) for _ in range(50)])
    calls = [client.prepare.Coat(one).wear(i - 10) for i, one in enumerate(numbers)]
    results = client.bulk(calls, raise_errors=False)
    assert results[10:] == list(range(40))
    assert [one.kind for one in results[:10]] == ["TornError"] * 10
    with pytest.raises(Aborted, match=f"coat {numbers[0].number}$"):
        client.bulk(calls)
    assert client.bulk([]) == []


def test_threads_share_a_client(client: Client) -> None:
    """One client serves many threads: each call gets its own answer, each takes effect once."""
    number = new_coat(client)
    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(lambda _: client.Coat(number).wear(), range(200)))
    assert sorted(seen) == list(range(1, 201))


def test_calls_wait_for_a_free_connection(meddler: Meddler) -> None:
    """More threads than connections take turns, and a thread that gets none in time gets an error."""
    with Client(meddler.url, app, connections=1) as client:
        number = new_coat(client)
        with ThreadPoolExecutor(8) as threads:
            seen = list(threads.map(lambda _: client.Coat(number).wear(), range(16)))
        assert sorted(seen) == list(range(1, 17))
    with Client(meddler.url, app, connections=1, timeout_s=0.3) as client:
        meddler.then.extend([Meddling.SILENCE] * 2)  # should the second find the connection free
        with ThreadPoolExecutor(2) as threads:
            late = [threads.submit(client.Coat(number).wear, 0) for _ in range(2)]
        assert [type(one.exception()) for one in late] == [TimedOut, TimedOut]
        meddler.then.clear()

        def worn() -> bool:
            with suppress(
                TimedOut
            ):  # on a busy machine, a call may take longer than this client waits
                return bool(client.Coat(number).wear(0) == 16)
            return False

        wait_for(worn, "a call that succeeds")


def test_async_client_does_the_same(gateway: RunningGateway, meddler: Meddler) -> None:
    """Awaited, everything is as it is without: results, errors, retries, bulk, pending, reads."""

    async def story() -> None:
        async with AsyncClient(meddler.url, app) as client:
            number = next(NUMBERS)
            assert await client.Coat.create(number) == Coat(number)
            meddler.then.extend([Meddling.CUT_AFTER, Meddling.BUSY])
            assert await client.Coat(number).wear(5) == 5
            with pytest.raises(Aborted, match="TornError"):
                await client.Coat(number).wear(-1)
            sent = await client.send(client.prepare.Coat(number).line(b"a", SILK))
            assert await sent.result() == SILK
            assert await sent.done()
            assert await client.pending(sent.request_id, Fabric).result() == SILK
            assert (await client.get("Coat", number))["fabric"] == SILK
            calls = [client.prepare.Coat(number).wear(one - 1) for one in range(30)]
            results: list[Any] = await client.bulk(calls, raise_errors=False)
            assert isinstance(results[0], Aborted)
            assert max(results[1:]) == 5 + sum(range(29))
            with pytest.raises(Aborted):
                await client.bulk(calls)
            assert client.epoch >= 0
            assert repr(client) == f"AsyncClient({meddler.url!r}, app='wardrobe')"

    asyncio.run(story())


def test_closed_client_opens_nothing(gateway: RunningGateway) -> None:
    """After its end a client makes no connection, whether it had one or not."""
    for calls in (0, 1):
        client = Client(gateway.url, app)
        for _ in range(calls):
            client.Coat.exists(1)
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.Coat.exists(1)

    async def story() -> None:
        client = AsyncClient(gateway.url, app)
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await client.Coat.exists(1)

    asyncio.run(story())


def test_name_that_the_client_has_itself_is_reached_through_call(client: Client) -> None:
    """`client.call` reaches methods whose names are those of the client's own methods."""
    with pytest.raises(RequestError, match="no function 'get'"):
        client.call.get("x")
    with pytest.raises(AttributeError):
        client._nothing  # noqa: B018


def test_key_is_never_shown(gateway: RunningGateway, caplog: pytest.LogCaptureFixture) -> None:
    """Neither `repr`, nor an error, nor the chattiest log has the key."""
    caplog.set_level(logging.DEBUG)
    with Client(gateway.url, app, key="sesame") as client:
        client.Coat.exists(1)
        shown = [repr(client), repr(vars(client))]
        with pytest.raises(RequestError) as caught:
            client.pending("never-sent").result()
        shown += [str(caught.value), caplog.text]
    assert "sesame" not in " ".join(shown)


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    """A setting that cannot be used is named before anything is sent."""
    settings: list[dict[str, Any]] = [
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"retries": -1},
        {"connections": 0},
        {"verify": tmp_path / "none.pem"},
    ]
    for setting in settings:
        with pytest.raises(PenstockError, match=next(iter(setting))):
            Client("http://127.0.0.1:9", **setting)
