"""When a client retries, when it gives up, and which error it raises, tested without a network."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.base.http import MSGPACK
from penstock.base.ids import RequestId
from penstock.client.operation import (
    FailureCause,
    HttpResponse,
    Operation,
    Pause,
    RetryPolicy,
    Send,
    TransportFailure,
)
from penstock.client.protocol import GatewayProtocol, SentRequest
from penstock.client.results import SqlQuery
from penstock.errors import (
    Aborted,
    Cancelled,
    NoSuchEntity,
    OperationalError,
    Overloaded,
    PenstockError,
    RequestError,
    TimedOut,
    Unreachable,
)
from penstock.model.call import Call

ADD: Call[Any] = Call("Item", "i1", "add", (5,), {}, "r1")
OK = HttpResponse(200, {"content-type": "application/json", "penstock-epoch": "7"}, b"6")
REFUSED = TransportFailure(FailureCause.REFUSED, "Connection refused", "http://127.0.0.1:9")
BROKEN = TransportFailure(FailureCause.BROKEN, "reset")


def failure(status: int, code: str, **headers: str) -> HttpResponse:
    body = {"error": {"code": code, "kind": "Kind", "message": "why"}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, named, msgspec.json.encode(body))


class Play:
    """Performs an operation against a script with its own clock, and records each step."""

    def __init__(
        self, *script: HttpResponse | TransportFailure, timeout_s: float = 60, retries: int = 8
    ) -> None:
        self.now_s = 100.0
        policy = RetryPolicy(timeout_s, retries, clock=lambda: self.now_s, jitter=random.Random(1))
        self.protocol = GatewayProtocol(None, policy, fresh=True)
        self.sent: list[Send] = []
        self.pauses_s: list[float] = []
        self._script: Iterator[HttpResponse | TransportFailure] = iter(script)

    def run(self, talk: Operation[Any]) -> Any:
        got: HttpResponse | TransportFailure | None = None
        while True:
            try:
                step = talk.send(got)
            except StopIteration as stop:
                return stop.value
            match step:
                case Send():
                    self.sent.append(step)
                    got = next(self._script)
                    if isinstance(got, TransportFailure) and got.cause is FailureCause.LATE:
                        self.now_s += step.timeout_s
                case Pause(seconds=seconds):
                    self.pauses_s.append(seconds)
                    self.now_s += seconds
                    got = None

    def call(self) -> Any:
        return self.run(self.protocol.call(ADD))


def test_answer_ends_the_talk() -> None:
    """A question that is answered is asked once, and its epoch is remembered."""
    play = Play(OK)
    assert play.call() == 6
    assert len(play.sent) == 1
    assert play.protocol.epoch == 7


@pytest.mark.parametrize(
    "trouble",
    [REFUSED, BROKEN, *(failure(status, "stopping") for status in (429, 502, 503, 504))],
    ids=str,
)
def test_trouble_is_tried_again_under_the_same_id(trouble: HttpResponse | TransportFailure) -> None:
    """After each temporary failure the client waits, and sends the same request again."""
    play = Play(trouble, trouble, OK)
    assert play.call() == 6
    assert {step.request.headers["Idempotency-Key"] for step in play.sent} == {"r1"}
    assert {step.request.content for step in play.sent} == {b"[5]"}
    assert len(play.sent) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 415, 422, 500])
def test_refusal_is_final(status: int) -> None:
    """A request that the caller must change, or that failed for good, is not sent again."""
    play = Play(failure(status, "request"))
    with pytest.raises(PenstockError, match="why"):
        play.call()
    assert len(play.sent) == 1


def test_pauses_grow_to_a_bound() -> None:
    """Pauses double from 0.1 s to 2 s, and chance takes off up to half of each."""
    play = Play(*[BROKEN] * 9)
    with pytest.raises(Unreachable):
        play.call()
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2]
    assert all(
        bound / 2 <= pause <= bound for pause, bound in zip(play.pauses_s, bounds, strict=True)
    )
    assert len(set(play.pauses_s)) == len(bounds)


def test_server_names_the_least_pause() -> None:
    """The client obeys `Retry-After`, and ignores a value that is not a number of seconds."""
    play = Play(
        failure(503, "stopping", retry_after="7"),
        failure(429, "overloaded", retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
        failure(429, "overloaded", retry_after="nan"),
        failure(429, "overloaded", retry_after="-5"),
        OK,
    )
    assert play.call() == 6
    assert play.pauses_s[0] >= 7
    assert all(pause <= 1 for pause in play.pauses_s[1:])


def test_pause_beyond_the_deadline_is_not_begun() -> None:
    """A caller whose time would end before the next try gets the reason at once."""
    play = Play(failure(429, "overloaded", retry_after="61"))
    with pytest.raises(Overloaded, match="why"):
        play.call()
    assert play.pauses_s == []


def test_late_answer_names_the_request() -> None:
    """A time-out says which request it was, and that asking again is safe."""
    play = Play(TransportFailure(FailureCause.LATE), timeout_s=3)
    with pytest.raises(TimedOut, match=r"within 3 s.*request_id='r1'"):
        play.call()


def test_time_out_of_a_gateway_is_a_time_out() -> None:
    """When the gateway's policy ends first each time, the error is the same."""
    play = Play(*[failure(504, "timed-out")] * 2, retries=1)
    with pytest.raises(TimedOut, match="request_id='r1'"):
        play.call()


def test_server_is_told_how_long_it_may_wait() -> None:
    """Each attempt asks for the time that is left, and waits no longer itself."""
    play = Play(BROKEN, OK, timeout_s=10)
    play.call()
    first, second = play.sent
    assert first.path == "/call/Item/i1/add?timeout=10.000"
    assert second.timeout_s == pytest.approx(10 - play.pauses_s[0])
    assert second.path.endswith(f"?timeout={second.timeout_s:.3f}")


def test_unreachable_says_whether_something_may_have_happened() -> None:
    """An error names the server, and the request id only if the request may have been taken."""
    refused = r"^http://127\.0\.0\.1:9: could not connect, 2 times: Connection refused$"
    with pytest.raises(Unreachable, match=refused):
        Play(REFUSED, REFUSED, retries=1).call()
    with pytest.raises(Unreachable, match=r"could not connect.*may have been accepted.*'r1'"):
        Play(BROKEN, REFUSED, retries=1).call()


def test_distrust_is_final() -> None:
    """A certificate that is not trusted will not be trusted in a second."""
    play = Play(TransportFailure(FailureCause.UNTRUSTED, "self-signed certificate"))
    with pytest.raises(Unreachable, match="not trusted: self-signed"):
        play.call()
    assert play.pauses_s == []


def test_no_retries_is_one_attempt() -> None:
    """With `retries=0` a question is sent once."""
    play = Play(failure(503, "log-unavailable"), retries=0)
    with pytest.raises(OperationalError, match="why"):
        play.call()


def test_calls_get_ids_of_their_own() -> None:
    """Two calls without an id are two requests."""
    play = Play(OK, OK)
    for _ in range(2):
        play.run(play.protocol.call(Call("Item", "i1", "add", (5,))))
    assert len({step.request.request_id for step in play.sent}) == 2


def test_send_ends_when_the_request_is_durable() -> None:
    """Only 202 says that a request was taken; a delay goes along."""
    told = HttpResponse(202, {}, b'{"request_id":"r1"}')
    play = Play(told)
    sent = play.run(play.protocol.send(ADD, 1.5))
    assert sent.request_id == "r1"
    assert play.sent[0].path == "/send/Item/i1/add?delay=1.500000"
    play = Play(HttpResponse(500, {}, b"<html>"))
    with pytest.raises(OperationalError, match="not a response of a gateway"):
        play.run(play.protocol.send(ADD, 0))


@pytest.mark.parametrize("delay_s", [-1.0, float("nan")])
def test_impossible_delay_is_refused(delay_s: float) -> None:
    """A delay lies in the future."""
    play = Play()
    with pytest.raises(RequestError, match="delay"):
        play.run(play.protocol.send(ADD, delay_s))


def standing(status: str, more: str = "") -> HttpResponse:
    return HttpResponse(
        200,
        {"content-type": "application/json"},
        b'{"status":"%b"%b}' % (status.encode(), more.encode()),
    )


def test_result_is_waited_for_through_every_standing() -> None:
    """A request is asked about, scheduled or pending, until it is answered."""
    play = Play(standing("scheduled"), standing("pending"), standing("answered", ',"value":[6]'))
    assert play.run(play.protocol.reply(SentRequest(RequestId("r/1")), None)) == [6]
    assert play.sent[0].path == "/requests/r%2F1?wait=25.000"


def test_failure_is_the_result_of_a_request_that_failed() -> None:
    """The failure of a sent request is raised where its result is asked for."""
    failed = standing("answered", ',"error":{"code":"aborted","kind":"OutOfStock","message":"i1"}')
    play = Play(failed)
    with pytest.raises(Aborted, match="OutOfStock: i1") as caught:
        play.run(play.protocol.reply(SentRequest(RequestId("r1")), None))
    assert caught.value.kind == "OutOfStock"
    recorded = HttpResponse(
        404,
        {"content-type": MSGPACK},
        msgspec.msgpack.encode(["no-such-entity", "NoSuchEntity", "gone"]),
    )
    play = Play(recorded)
    with pytest.raises(NoSuchEntity, match=r"^gone$"):
        play.run(play.protocol.reply(SentRequest(RequestId("r1")), None))


def test_cancelled_request_is_not_waited_for() -> None:
    """Its outcome is known before its epoch."""
    failed = standing("cancelled", ',"error":{"code":"cancelled","kind":"Cancelled","message":"x"}')
    play = Play(failed)
    with pytest.raises(Cancelled, match=r"^x$"):
        play.run(play.protocol.reply(SentRequest(RequestId("r1")), None))
    play = Play(failed)
    assert play.run(play.protocol.is_answered(SentRequest(RequestId("r1"))))


def test_result_that_does_not_come_is_a_time_out() -> None:
    """A caller that waits in vain learns the state of the request, when its own time is over."""
    play = Play(*[standing("scheduled")] * 20)
    with pytest.raises(TimedOut, match="request r1 is scheduled after 3 s"):
        play.run(play.protocol.reply(SentRequest(RequestId("r1")), 3))
    assert 101 < play.now_s <= 103


def test_unknown_request_is_an_error() -> None:
    """An id that no gateway knows is not waited for."""
    play = Play(failure(404, "request"))
    with pytest.raises(RequestError):
        play.run(play.protocol.reply(SentRequest(RequestId("r1")), None))


def test_reads_ask_for_what_was_seen() -> None:
    """A read names the newest epoch that the client has heard of, and older answers forget none."""
    shown = HttpResponse(200, {"penstock-epoch": "3"}, b'{"item_id":"i1"}')
    rows = HttpResponse(
        200, {}, b'{"epoch":8,"columns":[{"name":"n","type":"BIGINT"}],"rows":[[1]]}'
    )
    play = Play(shown, OK, shown, rows)
    for talk in (
        play.protocol.get("Item", "i1"),
        play.protocol.call(ADD),
        play.protocol.get("Item", "i1"),
        play.protocol.rows(SqlQuery("SELECT 1 AS n", [])),
    ):
        play.run(talk)
    assert "Penstock-Min-Epoch" not in play.sent[0].request.headers
    assert play.sent[2].request.headers["Penstock-Min-Epoch"] == "7"
    assert msgspec.json.decode(play.sent[3].request.content)["min_epoch"] == 7
