"""Calls as questions and answers as values, errors and tables: without a network."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock import App, Entity, key
from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import Epoch
from penstock.client.address import Address
from penstock.client.encoding import (
    error_of,
    key_text,
    path_of,
    request_of,
    value_of,
)
from penstock.client.operation import HttpResponse, OutgoingRequest
from penstock.client.results import EPOCH_KEY, rows_of, table_of
from penstock.errors import (
    BY_CODE,
    Aborted,
    ConfigError,
    IntegrityError,
    NoSuchEntity,
    OperationalError,
    PenstockError,
    RequestError,
    Unencodable,
)
from penstock.model.call import Call, returns_of


@dataclass
class Label:
    text: str
    size: Decimal


class Box(Entity):
    number: int = key()
    labels: set[bytes] = set()

    def fill(self, parts: tuple[Label, datetime], other: "Box | None" = None) -> set[bytes]:
        return self.labels


class Shelf(Entity):
    def __init__(self, name: str):
        self.name: str = name

    def __key__(self) -> str:
        return self.name


app = App("boxes", Box, Shelf)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def asked(call: Call[Any], known: App | None = None, place: str = "call") -> OutgoingRequest:
    return request_of(known, call, "r1", place)


def test_typed_arguments_travel_as_messagepack() -> None:
    """With the application, arguments are encoded as the log has them."""
    label = Label("a", Decimal("1.50"))
    question = asked(Call("Box", 7, "fill", ((label, NOON),), {"other": Box(8)}), app)
    assert question.path == "/call/Box/7/fill"
    assert question.headers["Content-Type"] == question.headers["Accept"] == MSGPACK
    positional, named = msgspec.msgpack.decode(question.content)
    assert positional[0][0] == {"text": "a", "size": "1.50"}
    assert positional[0][1] == NOON
    assert named == {"": ["parts"], "other": "8"}


@pytest.mark.parametrize(
    "call",
    [
        Call("Box", 7, "fill", (3,)),
        Call("Box", 7, "fill"),
        Call("Box", "seven", "exists"),
        Call("Box", None, "exists"),
        Call("Box", 7, "missing"),
        Call("Nothing", 7, "exists"),
        Call("", None, "missing"),
    ],
    ids=str,
)
def test_wrong_call_is_refused_before_it_is_sent(call: Call[Any]) -> None:
    """With the application, a call that cannot succeed is not sent."""
    with pytest.raises(RequestError):
        asked(call, app)


def test_plain_arguments_travel_as_json() -> None:
    """Without the application, arguments are an array or an object, as JSON has them."""
    question = asked(Call("Anything", 7, "do", (1, {"a": {3}}, NOON)))
    assert question.headers["Content-Type"] == question.headers["Accept"] == JSON
    assert question.content == b'[1,{"a":[3]},"2026-01-01T12:00:00Z"]'
    assert asked(Call("", None, "run", (), {"n": 1})).content == b'{"n":1}'
    assert asked(Call("", None, "run")).path == "/call/run"


@pytest.mark.parametrize(
    "call",
    [
        Call("Item", "i1", "do", (1,), {"b": 2}),
        Call("Item", None, "do"),
        Call("Item", object(), "do"),
        Call("Item", "i1", "do", (object(),)),
        Call("Item", "", "do"),
        Call("Item", "-", "create"),
    ],
)
def test_plain_call_that_json_cannot_say_is_refused(call: Call[Any]) -> None:
    """Without the application, a value that has no JSON is not sent."""
    with pytest.raises(RequestError):
        asked(call)


@pytest.mark.parametrize("request_id", ["", "a b", "a\r\nX: y", "é", "x" * 1025])
def test_request_id_cannot_hold_a_header(request_id: str) -> None:
    """An id is sent as a header's value, so it is one, or refused."""
    with pytest.raises(RequestError, match="request id"):
        request_of(None, Call("Item", "i1", "do"), request_id, "call")


@pytest.mark.parametrize(
    ("segment", "path"),
    [
        ("a/b", "/a%2Fb"),
        ("..", "/%2E%2E"),
        (".", "/%2E"),
        ("é?#%", "/%C3%A9%3F%23%25"),
        ("a b", "/a%20b"),
    ],
)
def test_key_stays_one_segment(segment: str, path: str) -> None:
    """Every key, with any characters in it, is one segment of the path."""
    assert path_of(segment) == path


def test_half_a_character_is_refused() -> None:
    """Text that has no UTF-8 cannot be sent."""
    with pytest.raises(RequestError):
        path_of("\ud800")


def test_creation_without_a_key_derives_it() -> None:
    """`-` stands for a key to be derived, so no entity with this key can be created."""
    assert asked(Call("Box", None, "create"), app).path == "/call/Box/-/create"
    assert asked(Call("Shelf", None, "create", ("north",)), app).path == "/call/Shelf/-/create"
    assert asked(Call("Shelf", "-", "exists"), app).path == "/call/Shelf/-/exists"


def test_keys_are_written_as_the_application_writes_them() -> None:
    """A key is its text, with the application or without; a reference is its key."""
    assert key_text(app, "Box", 7) == key_text(None, "Box", 7) == "7"
    assert key_text(app, "Box", Box(7)) == "7"
    assert key_text(None, "Note", NOON) == "2026-01-01T12:00:00Z"


def test_result_has_its_declared_type() -> None:
    """A result is decoded as the method says; a creation's is a reference."""
    data = msgspec.msgpack.encode([b"x", b"y"])
    call: Call[Any] = Call("Box", 7, "fill")
    answer = HttpResponse(200, {"content-type": MSGPACK}, data)
    assert value_of(answer, returns_of(app, call)) == {b"x", b"y"}
    created = HttpResponse(200, {"content-type": MSGPACK}, msgspec.msgpack.encode("7"))
    assert value_of(created, returns_of(app, Call("Box", None, "create"))) == Box(7)


def test_result_of_another_type_is_an_error() -> None:
    """A result that does not fit its declaration is an error."""
    answer = HttpResponse(200, {"content-type": MSGPACK}, msgspec.msgpack.encode(3))
    with pytest.raises(
        Unencodable, match="the request is done, but its result does not fit the annotation"
    ):
        value_of(answer, set[bytes])


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"{"])
def test_garbage_is_an_error(content: bytes) -> None:
    """A body that is not a value is an error of the gateway."""
    for kind in (JSON, MSGPACK):
        with pytest.raises(PenstockError):
            value_of(HttpResponse(200, {"content-type": kind}, content), dict[str, int])
        with pytest.raises(OperationalError, match="not a response of a gateway"):
            raise error_of(HttpResponse(502, {"content-type": kind}, content))


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_comes_back_as_its_class(code: str) -> None:
    """The class fits the code, in either encoding, and the kind is kept."""
    told: Any = {"error": {"code": code, "kind": "OutOfStock", "message": "i1"}}
    recorded = msgspec.msgpack.encode([code, "OutOfStock", "i1"])
    for answer in (
        HttpResponse(400, {"content-type": JSON}, msgspec.json.encode(told)),
        HttpResponse(400, {"content-type": f"{MSGPACK}; v=1"}, recorded),
    ):
        error = error_of(answer)
        assert type(error) is BY_CODE[code]
        assert (error.kind, str(error)) == ("OutOfStock", "OutOfStock: i1")


def test_a_code_of_the_application_is_an_abort() -> None:
    """A reply with a code that an exception class of the application brought is an abort."""
    told = b'{"error":{"code":"sold-out","kind":"SoldOut","message":"i1"}}'
    error = error_of(HttpResponse(400, {"penstock-epoch": "7"}, told))
    assert type(error) is Aborted
    assert (error.kind, str(error)) == ("SoldOut", "SoldOut: i1")


def test_error_of_http_is_not_an_abort() -> None:
    """A code that the tree does not have says that the question was wrong, or the server is."""
    told = b'{"error":{"code":"path-too-long","kind":"Refused","message":"shorter"}}'
    error = error_of(HttpResponse(414, {}, told))
    assert type(error) is RequestError
    assert str(error) == "shorter"
    assert type(error_of(HttpResponse(500, {}, told))) is OperationalError


def test_redirection_is_shown_and_not_followed() -> None:
    """A gateway points nowhere else; where another server does, one learns where."""
    with pytest.raises(RequestError, match="status 307, which points to https://other/"):
        raise error_of(HttpResponse(307, {"location": "https://other/"}, b""))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://host",
        "http://",
        "http://user:secret@host",
        "http://host?x=1",
        "http://host/#a",
        "http://host?",
        "http://host:99999",
        "http://host:0",
        "http://ho st",
        "http://host\r\n",
        "http://[::1",
    ],
)
def test_url_of_nothing_is_refused(url: str) -> None:
    """A URL is that of a gateway, and says nothing else; a password in it is not repeated."""
    with pytest.raises(ConfigError) as caught:
        Address(url)
    assert "secret" not in str(caught.value)


def test_url_may_have_a_path() -> None:
    """A gateway may lie below a path, behind a proxy."""
    assert Address("https://[::1]:8000/shop/").url == "https://[::1]:8000/shop"


@pytest.mark.parametrize("value", ["", "a b", "a\n", "é"])
def test_key_that_is_no_header_is_refused(value: str) -> None:
    """A key is sent as a header's value, and never shown."""
    with pytest.raises(ConfigError) as caught:
        Address("http://host", value)
    assert not value or value not in str(caught.value)


def test_key_is_not_shown() -> None:
    """No `repr` holds the key; the header does."""
    address = Address("http://host", "sesame")
    assert "sesame" not in repr(address)
    assert address.headers == {"Authorization": "Bearer sesame"}


def test_rows_name_their_epoch() -> None:
    """An answer in JSON is rows with names, types and an epoch."""
    content = b'{"epoch":4,"columns":[{"name":"a","type":"BIGINT"}],"rows":[[1],[null]]}'
    rows = rows_of(HttpResponse(200, {}, content))
    assert (rows.epoch, len(rows), list(rows)) == (4, 2, [(1,), (None,)])
    assert rows.dicts() == [{"a": 1}, {"a": None}]
    with pytest.raises(OperationalError):
        rows_of(HttpResponse(200, {}, b"[]"))


def test_table_names_its_epoch() -> None:
    """An answer in Arrow is the table, and its metadata also has the epoch."""
    wanted = pa.table({"a": [1, 2]}).replace_schema_metadata({"by": "hand"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, wanted.schema) as writer:
        writer.write_table(wanted)
    table = table_of(HttpResponse(200, {}, sink.getvalue().to_pybytes()), Epoch(4))
    assert table.equals(wanted)
    assert table.schema.metadata == {b"by": b"hand", EPOCH_KEY: b"4"}
    with pytest.raises(OperationalError):
        table_of(HttpResponse(200, {}, b"no table"), Epoch(4))


def test_recorded_failures_fit_their_classes() -> None:
    """`NoSuchEntity` and the errors that applications raise are both aborts."""
    gone = HttpResponse(
        404, {"content-type": MSGPACK}, msgspec.msgpack.encode(["no-such-entity", "", ""])
    )
    assert isinstance(error_of(gone), NoSuchEntity)
    own = HttpResponse(
        400, {"content-type": MSGPACK}, msgspec.msgpack.encode(["future", "Boom", "x"])
    )
    assert isinstance(error_of(own), Aborted)
    damaged = HttpResponse(500, {}, b'{"error":{"code":"corrupt","kind":"Corrupt","message":"m"}}')
    assert isinstance(error_of(damaged), IntegrityError)
