"""The gateway against raw sockets: it refuses arbitrary bytes and goes on.

Every exchange must end before its deadline, in answers below 500 or in a closed connection, and say
nothing of the machine; afterwards the gateway still serves who behaves.
"""

import json
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.process.config import GatewayConfig
from tests.faults.raw_http import CALL, DEADLINE_S, exchange, refused, request, statuses
from tests.gateway_thread import HOST, RunningGateway
from tests.waiting import wait_for

SETTINGS = GatewayConfig(
    body_bytes_max=64 << 10,
    header_bytes_max=8 << 10,
    depth_max=32,
    receive_timeout_ms=300,
    reply_timeout_ms=20_000,
)
SLOW_S = 0.1
"""Between two bytes of a slow sender: each one is in time, all together are not."""
TOO_SLOW = 408


pytestmark = pytest.mark.faults
hurried = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    data = tmp_path_factory.mktemp("wire")
    with RunningGateway("tests.unit.client.all_types_app:app", data, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def good(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def _still_serving(good: httpx.Client) -> Iterator[None]:
    yield

    def answer() -> httpx.Response | None:
        with suppress(httpx.TransportError):  # it was cut off
            answer = good.post(CALL, json=["still here"], headers={"Connection": "close"})
            return None if answer.status_code == TOO_SLOW else answer
        return None

    told = wait_for(answer, "an answer")
    assert (told.status_code, told.json()) == (200, "still here")


def in_time(gateway: RunningGateway, data: bytes) -> bytes:
    """Exchange good bytes until they arrive in time: on a busy machine, everybody may be too slow."""

    def answer() -> bytes:
        answer = exchange(gateway, data)
        return b"" if TOO_SLOW in statuses(answer) else answer

    answered: bytes = wait_for(answer, "an answer")
    return answered


def nested(depth: int, opening: str = "[", closing: str = "]", inside: str = "1") -> bytes:
    return (opening * depth + inside + closing * depth).encode()


WRONG_JSON = [
    b"[NaN]",
    b"[Infinity]",
    b"[-Infinity]",
    b"[1e400]",
    b"[1",
    b"{",
    b'{"value":1,}',
    b'["\xff\xfe"]',
    b'["\\ud800"]',
    b'["\x00"]',
    b"\xef\xbb\xbf[1]",
    b"\x00",
    b"1",
    b'"text"',
    b"null",
    b"[1][2]",
    nested(33),
    nested(30_000),
    nested(6_000, '{"a":', "}"),
    nested(30_000, closing=""),
    b'{"value":' + nested(40) + b"}",
    b"[" + b"9" * 5_000 + b"]",
    b"[" + str(2**64).encode() + b"]",
    b"[" + str(-(2**63) - 1).encode() + b"]",
    b"[" + b'"' + b"a" * 70_000 + b'"' + b"]",
    b'{"nothing":1}',
    b"[1,2]",
]


@pytest.mark.parametrize("body", WRONG_JSON, ids=lambda one: repr(one[:20]))
def test_wrong_json_is_refused(gateway: RunningGateway, body: bytes) -> None:
    """A body that is not JSON, or does not fit the call, gets 4xx."""
    answer = exchange(gateway, request(body))
    assert refused(answer)
    assert statuses(answer) != []


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 - 1, -(2**63)])
def test_integers_beyond_doubles_stay_whole(gateway: RunningGateway, number: int) -> None:
    """An integer that a double cannot hold comes back to the last digit."""
    answer = in_time(gateway, request(f"[{number}]".encode()))
    assert answer.endswith(b"\r\n\r\n" + str(number).encode())


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@hurried
def test_arguments_of_any_type_end_well(gateway: RunningGateway, body: object) -> None:
    """Any JSON (and the values that Python takes for it) may be sent to typed methods; nothing breaks."""
    text = json.dumps(body).encode()
    for path in (CALL, "/call/Coat/1/create", "/call/Coat/1/line", "/call/hang_up", "/call/echo"):
        assert statuses(exchange(gateway, request(text, path=path))) != []


@given(data=st.binary(max_size=300))
@example(b"")
@example(b"GET")
@example(b"GET / HTTP/9.9\r\n\r\n")
@example(b"GET /healthz HTTP/1.1\r\n\r\n")
@example(b"\r\n\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # TLS
@example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
@hurried
def test_noise_ends_well(gateway: RunningGateway, data: bytes) -> None:
    """Bytes that are no HTTP end in 4xx or a closed connection."""
    assert refused(exchange(gateway, data)) or b"alive" in exchange(gateway, data)


@given(data=st.binary(max_size=200))
@hurried
def test_noise_in_a_head_ends_well(gateway: RunningGateway, data: bytes) -> None:
    """A head with bytes that belong to none ends in an answer below 500 or a closed connection."""
    for head in (
        b"POST /call/%s HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n%s\r\n\r\n",
    ):
        statuses(exchange(gateway, head % data))


PATHS = [
    "/call/Coat/%2F/wear",
    "/call/Coat/%00/wear",
    "/call/Coat/../wear",
    "/call/Hook/..%2f..%2fetc%2fpasswd/exists",
    "/../../etc/passwd",
    "//call//anything",
    "/call",
    "/call/",
    "/call//",
    "/call/Coat//wear",
    "/call/Coat/1/",
    "/call/Coat/1/__init__",
    "/call/Coat/1/__class__",
    "/call/Coat/1/_refer",
    "/call/__import__",
    "/call/Coat/1/wear/more",
    "/call/%FF/%FE/%FD",
    "/call/%",
    "/call/%zz",
    "/call/" + "a" * 5_000,
    "/call/" + "a" * 20_000,
    "/" + "/" * 5_000,
    "/call/Hook/" + "k" * 401 + "/exists",
    "/call/Coat/" + "9" * 300 + "/wear",
    "/call/Coat/01/wear",
    "/call/Coat/1.0/wear",
    "/call/anything?timeout=nan",
    "/call/anything?timeout=-1",
    "/call/anything?timeout=1e999x",
    "/call/anything?" + "&".join(f"a{n}=1" for n in range(200)) + "&timeout=1",
    "/call/anything?timeout=%FF",
    "*",
    "http://elsewhere.example/call/anything",
    "/entities/Nothing/1",
    "/requests/%00",
    "/requests/" + "r" * 3_000,
]


@pytest.mark.parametrize("path", PATHS, ids=lambda one: one[:40])
@pytest.mark.parametrize("verb", ["GET", "POST", "BREW"])
def test_strange_paths_are_refused(gateway: RunningGateway, path: str, verb: str) -> None:
    """A path that means nothing, or means something else to others, gets 4xx."""
    assert refused(exchange(gateway, request(b"{", path=path, verb=verb)))


def test_keys_may_hold_anything_that_text_may(gateway: RunningGateway) -> None:
    """A slash, a dot, a percent sign or a zero in a key is part of the key."""
    for key in ("a%2Fb", "%2E%2E", "%25", "%00", "%F0%9F%8E%A9", "a%20b", "+", ";"):
        path = f"/call/Hook/{key}/upsert"
        answer = in_time(gateway, request(b"{}", path=path))
        assert statuses(answer) == [200], answer
        shown = in_time(gateway, request(path=f"/entities/Hook/{key}", verb="GET"))
        assert statuses(shown) == [200]


HEADERS = [
    ["X-Large: " + "a" * 9_000],
    ["X-Large: " + "a" * 100_000],
    [f"X-{n}: {n}" for n in range(90)],
    [f"X-{n}: {n}" for n in range(2_000)],
    ["Content-Length: -1"],
    ["Content-Length: 1e3"],
    ["Content-Length: 99999999999999999999999"],
    ["Content-Length: 3", "Content-Length: 4"],
    ["Content-Length: 3", "Transfer-Encoding: chunked"],
    ["Transfer-Encoding: gzip, chunked, gzip"],
    ["Transfer-Encoding: sideways"],
    ["Content-Type: text/xml"],
    ["Content-Type: application/msgpack"],
    ["Content-Type: \xff"],
    ["Content-Encoding: gzip", "Content-Type: application/octet-stream"],
    ["Idempotency-Key: "],
    ["Idempotency-Key: a b"],
    ["Idempotency-Key: \xe9"],
    ["Idempotency-Key: " + "i" * 1_025],
    ["Idempotency-Key: one", "Idempotency-Key: two words"],
    ["Penstock-Min-Epoch: -1", "Idempotency-Key: \x7f"],
    [" folded: header"],
    ["No-Colon"],
    ["Space : before"],
    ["Null: \x00"],
]


@pytest.mark.parametrize("headers", HEADERS, ids=lambda one: one[0][:30])
def test_wrong_headers_end_well(gateway: RunningGateway, headers: list[str]) -> None:
    """Headers that are too large, too many, or contradict each other are refused or harmless."""
    statuses(exchange(gateway, request(b"[1]", *headers)))


@pytest.mark.parametrize("length", [0, 1, 2, 4, 5, 1_000, 60_000, 70_000])
def test_wrong_length_ends_well(gateway: RunningGateway, length: int) -> None:
    """A body that is shorter or longer than announced is not taken for a whole one."""
    found = statuses(exchange(gateway, request(b"[1]", f"Content-Length: {length}")))
    assert 200 not in found or length == 0  # nothing is an absent argument


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n[1]\r\n0\r\n\r\n",
        b"-3\r\n[1]\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n[1]\r\n0\r\n\r\n",
        b"3\r\n[1]0\r\n\r\n",
        b"3\r\n[1]\r\n",
        b"3;" + b"x" * 20_000 + b"\r\n[1]\r\n0\r\n\r\n",
        b"3\r\n[1]\r\n0\r\nTrailer: x\r\n\r\n",
        b"3\r\n[1]\r\n0\r\n" + b"T: x\r\n" * 5_000 + b"\r\n",
        b"fffff\r\n" + b" " * 0xFFFFF + b"\r\n0\r\n\r\n",
        b"1\r\n[\r\n" * 3_000 + b"0\r\n\r\n",
    ],
    ids=lambda one: repr(one[:16]),
)
def test_wrong_chunks_end_well(gateway: RunningGateway, body: bytes) -> None:
    """Chunks without a valid length, or without an end, end in 4xx or a closed connection."""
    answer = exchange(gateway, request(body, "Transfer-Encoding: chunked"))
    assert statuses(answer) in ([], [200]) or refused(answer)


def test_chunks_are_taken(gateway: RunningGateway) -> None:
    """A body in chunks is the body."""
    answer = in_time(
        gateway, request(b"2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n", "Transfer-Encoding: chunked")
    )
    assert statuses(answer) == [200]
    assert answer.rstrip().endswith(b"1")


def test_pipelined_requests_are_answered_in_order(gateway: RunningGateway) -> None:
    """Requests that come before the answers to others are answered each in its turn."""
    several = [request(f"[{n}]".encode()) for n in range(20)]
    open_ones = [one.replace(b"Connection: close\r\n", b"") for one in several[:-1]]
    answer = in_time(gateway, b"".join([*open_ones, several[-1]]))
    assert statuses(answer) == [200] * 20
    assert [int(one) for one in re.findall(rb"\r\n\r\n(\d+)", answer)] == list(range(20))


def test_good_request_after_a_bad_body_is_not_confused(gateway: RunningGateway) -> None:
    """Bytes after a refused request are the next request of its connection, or never read."""
    bad = request(b"[" * 100).replace(b"Connection: close\r\n", b"")
    found = statuses(exchange(gateway, bad + request(b'["after"]')))
    assert found in ([400], [400, 200])


def dripping(data: bytes, size: int = 1) -> Sequence[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_slow_head_ends(gateway: RunningGateway) -> None:
    """A client that sends a head byte by byte, without end, is cut off."""
    pieces = dripping(b"POST /call/anything HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaa")[:30]
    assert refused(exchange(gateway, *pieces, pause_s=SLOW_S))


def test_slow_body_ends(gateway: RunningGateway) -> None:
    """A client that sends a body byte by byte gets 408, or is cut off."""
    head = request(b"", "Content-Length: 1000")
    answer = exchange(gateway, head, *dripping(b"[" + b" " * 12), pause_s=SLOW_S)
    assert statuses(answer) in ([408], [])


def test_silence_ends(gateway: RunningGateway) -> None:
    """A client that connects and sends nothing, or half a request, is cut off."""
    assert refused(exchange(gateway, b"POST /call/anything HT"))
    assert statuses(exchange(gateway, request(b"", "Content-Length: 9"))) in ([408], [])


def test_half_closed_connection_ends_well(gateway: RunningGateway) -> None:
    """A client that closes its sending side is answered, or cut off: HTTP allows a server both."""
    for data in (request(b'["half"]'), request(b"[", "Content-Length: 9"), b"POST", b""):
        assert statuses(exchange(gateway, data, half=True)) in ([], [200], [400], [408])


def test_reset_connections_do_no_harm(gateway: RunningGateway) -> None:
    """Clients that vanish in the middle of a request or before the answer leave nothing behind."""
    for data in (request(b"[1]"), request(b"[1]", "Content-Length: 50"), b"POST /ca"):
        for _ in range(10):
            with socket.create_connection((HOST, urlsplit(gateway.url).port), DEADLINE_S) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sendall(data)
    assert statuses(in_time(gateway, request(b'["after them"]'))) == [200]


GOOD = msgspec.msgpack.encode([[{"a": [1, "b", 2.5, None, b"c"]}], {}])


@pytest.mark.parametrize("size", range(1, len(GOOD)))
def test_truncated_messagepack_is_refused(gateway: RunningGateway, size: int) -> None:
    """MessagePack that ends too early gets 4xx, wherever it ends."""
    answer = exchange(gateway, request(GOOD[:size], "Content-Type: application/msgpack"))
    assert refused(answer)
    assert statuses(answer) != []


@given(data=st.binary(max_size=80))
@example(b"\x92\xdd\xff\xff\xff\xff\x80")  # an array that says it has 2**32 - 1 items
@example(b"\x92\xdf\xff\xff\xff\xff\x80")
@example(b"\x92\x91" + b"\x91" * 5_000 + b"\x80")
@example(b"\x92\x91" + b"\x91" * 60_000)
@example(b"\x92\x91" + b"\x91" * 200 + b"\x01\x80")
@example(b"\x92\x91" + b"\x91" * 450 + b"\x01\x80")
@example(b"\x92\x91" + b"\x91" * 490 + b"\x01\x80")
@example(b"\x92\x91" + b"\x91" * 900 + b"\x01\x80")
@example(b"\x92\x91\xc7\xff\x05" + b"\x00" * 255 + b"\x80")  # an unknown extension
@example(b"\x92\x91\xc7\x02\x05ab\x80")
@example(b"\x92\x91\x81\xc4\x01\xff\x01\x80")  # bytes as a key
@example(b"\x92\x91\x82\x01\x01\xa11\x02\x80")  # 1 and "1" as keys
@example(b"\x92\x91\x81\x91\x01\x01\x80")  # an array as a key
@example(b"\x92\x91\x81\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\x01\x80")  # NaN as a key
@example(b"\x92\x91\x81\xd6\xff\x00\x00\x00\x00\x01\x80")  # an instant as a key
@example(b"\x92\x91\x81\xc7\x02\x05ab\x01\x80")  # an extension as a key
@example(b"\x92\x91\xd6\xff\xff\xff\xff\xff\x80")
@example(b"\x92\x91\xd9\x02\xff\xfe\x80")
@example(b"\x92\x91\xc0\x81\xc0\xc0")
@example(b"\x92\x90\x81\xa5value\x81\x91\x01\x02")
@hurried
def test_messagepack_noise_ends_well(gateway: RunningGateway, data: bytes) -> None:
    """Bytes that say they are MessagePack end in an answer below 500."""
    for accept in ("application/msgpack", "application/json"):
        headers = ("Content-Type: application/msgpack", f"Accept: {accept}")
        assert statuses(exchange(gateway, request(data, *headers))) != []


@given(value=st.text() | st.binary(max_size=50), text=st.text(max_size=60))
@hurried
def test_own_ids_of_any_text_end_well(gateway: RunningGateway, value: object, text: str) -> None:
    """With any values in the head, the answer is below 500."""
    shown = text.encode("utf-8", "surrogatepass").decode("latin-1")
    clean = re.sub(r"[\r\n\x00]", "", shown)
    body = msgspec.json.encode([value])
    statuses(exchange(gateway, request(body, f"Idempotency-Key: {clean}")))
