"""Request ids: their principals, their stored form, and texts that are refused."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import RequestId
from penstock.deployment.loading import load_app
from penstock.errors import Forbidden, RequestError
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import ANONYMOUS, WATCH, Principal, Scope, granted
from penstock.gateway.handlers import history
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.request_ids import check_stored, named_id, stored_id
from penstock.log.api import Entry
from penstock.model.request import encode_continuation
from penstock.process.data_directory import DataDirectory
from penstock.process.question import envelope_of
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

MOST = 1_024
APP = """
import penstock
from penstock import App, entity, key, readonly, route, transactional

@entity
class Till:
    name: str = key()
    paid: int = 0

    def pay(self, amount: int) -> int:
        self.paid += amount
        return self.paid

    @readonly
    @route("GET /tills/{name}/paid")
    def shown(self) -> int:
        return self.paid

@route("POST /who/{number}")
def who(number: int) -> str:
    return penstock.request_id()

app = App("tills", Till, who)
"""
ada = Principal("ada", frozenset({Scope("call")}), "ada")
bob = Principal("bob", frozenset({Scope("call")}), "bob")
operator = Principal("operator", frozenset({Scope("admin")}), "operator")
watcher = Principal("watcher", frozenset({WATCH}), "watcher")
chosen_ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7D), min_size=1, max_size=20)
namespaces = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7D), max_size=20)


@given(namespaces, chosen_ids, namespaces, chosen_ids)
def test_stored_ids_are_read_in_one_way(one: str, chosen: str, other: str, also: str) -> None:
    """Two principals, or two ids, never share a stored id, and the full form names it."""
    stored = [
        stored_id(Principal("", frozenset(), space), text)
        for space, text in ((one, chosen), (other, also))
    ]
    assert (stored[0] == stored[1]) == ((one, chosen) == (other, also))
    full = stored[0] if one else f"~{chosen}"
    assert named_id(operator, full, MOST) == stored[0] == check_stored(stored[0])


def test_own_ids_are_named_as_they_were_chosen() -> None:
    """A principal names its own ids alone or in full; others' are for operators."""
    assert (
        stored_id(ANONYMOUS, "tea-for-ada")
        == "tea-for-ada"
        == named_id(ANONYMOUS, "tea-for-ada", MOST)
    )
    assert stored_id(ada, "order-1") == "ada~order-1"
    assert named_id(ada, "order-1", MOST) == named_id(ada, "ada~order-1", MOST) == "ada~order-1"
    assert named_id(operator, "ada~order-1", MOST) == "ada~order-1"
    assert named_id(operator, "~tea-for-ada", MOST) == "tea-for-ada"
    for text in ("ada~order-1", "~tea-for-ada"):
        with pytest.raises(Forbidden, match="lacks the scope admin"):
            named_id(bob, text, MOST)
        with pytest.raises(Forbidden, match="lacks the scope admin"):
            named_id(watcher, text, MOST)
    assert named_id(watcher, "ada~order-1", MOST, is_read=True) == "ada~order-1"


@pytest.mark.parametrize("rest", ["~~1", "~~s1.0", "~~s1.0~~t", "~~c2"])
def test_a_derived_id_belongs_to_the_principal_of_its_beginning(rest: str) -> None:
    """A request that a handler has sent, or a scheduled one, is found by its id, as its cause is."""
    assert named_id(ANONYMOUS, "tea" + rest, MOST) == "tea" + rest
    assert named_id(ada, "order-1" + rest, MOST) == "ada~order-1" + rest
    assert named_id(ada, "ada~order-1" + rest, MOST) == "ada~order-1" + rest
    assert named_id(operator, "~tea" + rest, MOST) == "tea" + rest
    with pytest.raises(Forbidden, match="lacks the scope admin"):
        named_id(bob, "ada~order-1" + rest, MOST)


@pytest.mark.parametrize(
    "text",
    ["", "~", "a~", "a~b~c", "a~~", "~~1", "a~~b c", "a b", "a\x00b", "é", "x" * 1_025, "\ud800"],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    """Empty, long, unprintable and ambiguous ids are errors of the caller, also of an operator."""
    with pytest.raises(RequestError, match="request id"):
        named_id(operator, text, MOST)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tills") / "tills.py"
    path.write_text(APP)
    return str(path)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A data directory, and its keys by their names."""
    data = tmp_path_factory.mktemp("keyed")
    with closing(DataDirectory(data).open_log()):
        pass
    scopes = {"ada": ["call", "sql"], "bob": ["call", "sql"], "operator": ["admin", "sql"]}
    return data, {
        name: KeyStore(data).add(name, granted(words), None, datetime.now(UTC))[1]
        for name, words in scopes.items()
    }


@pytest.fixture(scope="module")
def standing(spec: str, secrets: tuple[Path, dict[str, str]]) -> Iterator[RunningGateway]:
    """A gateway with these keys."""
    with RunningGateway(spec, secrets[0]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def keyed(
    standing: RunningGateway, secrets: tuple[Path, dict[str, str]]
) -> Iterator[dict[str, httpx.Client]]:
    """Clients with keys of their own, by the key's name."""
    clients = {
        name: httpx.Client(base_url=standing.url, headers={"X-API-Key": secret}, timeout=30)
        for name, secret in secrets[1].items()
    }
    for name in ("ada", "bob"):
        clients[name].post(f"/call/Till/{name}/create")
    yield clients
    for client in clients.values():
        client.close()


def sent(client: httpx.Client, path: str, body: Any, chosen: str) -> httpx.Response:
    return client.post(path, json=body, headers={"Idempotency-Key": chosen})


def test_same_id_of_two_principals_is_two_requests(keyed: dict[str, httpx.Client]) -> None:
    """Neither takes the other's id, nor gets its reply; each sees its own by the id it chose."""
    answers = [
        sent(keyed[name], f"/call/Till/{name}/pay", [amount], "order-1")
        for name, amount in (("ada", 5), ("bob", 7), ("ada", 5))
    ]
    assert [one.json() for one in answers] == [5, 7, 5]
    assert {one.headers["penstock-request-id"] for one in answers} == {"order-1"}
    told = {name: keyed[name].get("/requests/order-1").json() for name in ("ada", "bob")}
    assert {name: one["value"] for name, one in told.items()} == {"ada": 5, "bob": 7}
    assert told["ada"]["request_id"] == "order-1"


def is_known(client: httpx.Client) -> bool:
    return client.get("/requests/none").status_code == 404


def test_a_retry_with_other_scopes_gets_the_first_reply(
    keyed: dict[str, httpx.Client], standing: RunningGateway, secrets: tuple[Path, dict[str, str]]
) -> None:
    """A key is replaced by one of its name with other scopes: a call is compared without them, and has one effect."""
    store, words = KeyStore(secrets[0]), (["call:Till"], ["call", "read"], ["read"])
    answers = []
    for scopes in words:
        secret = store.add("cora", granted(scopes), None, datetime.now(UTC))[1]
        with httpx.Client(base_url=standing.url, headers={"X-API-Key": secret}) as cora:
            wait_for(partial(is_known, cora), "the use of the key")
            sent(cora, "/call/Till/cora/create", [], "new")
            answers += [sent(cora, "/call/Till/cora/pay", [each], "order-1") for each in (5, 6)]
        store.revoke("cora")
    first, conflict, again, still, refused, _ = answers
    assert (first.json(), again.json()) == (5, 5)
    assert first.headers["penstock-epoch"] == again.headers["penstock-epoch"]
    assert (conflict.status_code, still.status_code) == (409, 409)
    assert refused.status_code == 403, "a caller who may not call gets no reply, either"
    assert keyed["operator"].get("/tills/cora/paid").status_code == 403
    assert keyed["ada"].get("/tills/cora/paid").json() == 5


def test_another_principals_request_is_for_operators(keyed: dict[str, httpx.Client]) -> None:
    """The full form of another's id is forbidden, whether it exists or not, but for `admin`."""
    sent(keyed["ada"], "/call/Till/ada/pay", [1], "private")
    assert keyed["bob"].get("/requests/private").status_code == 404
    for path in ("/requests/ada~private", "/requests/ada~private/trace", "/requests/ada~nothing"):
        assert keyed["bob"].get(path).status_code == 403
    seen = keyed["operator"].get("/requests/ada~private")
    assert (seen.status_code, seen.json()["request_id"]) == (200, "ada~private")
    assert seen.headers["penstock-request-id"] == "ada~private"


def test_scheduled_ids_are_their_principals(keyed: dict[str, httpx.Client]) -> None:
    """The same id of two principals waits twice."""
    for name, amount in (("ada", 1), ("bob", 2)):
        later = sent(keyed[name], f"/send/Till/{name}/pay?delay=3600", [amount], "later#1")
        assert later.status_code == 202
        assert later.headers["location"] == "/requests/later%231"
        found = keyed[name].get(later.headers["location"]).json()
        assert (found["status"], found["request_id"]) == ("scheduled", "later#1")
    assert keyed["operator"].get("/requests/later%231").status_code == 404


def test_only_the_sender_and_operators_cancel(keyed: dict[str, httpx.Client]) -> None:
    """A principal cannot cancel the scheduled request of another; an operator can, by its full id."""
    for chosen in ("mine", "mine-too"):
        sent(keyed["ada"], "/send/Till/ada/pay?delay=3600", [1], f"cancel-{chosen}")
    assert keyed["bob"].delete("/requests/cancel-mine").status_code == 404
    assert keyed["bob"].delete("/requests/ada~cancel-mine").status_code == 403
    assert keyed["ada"].get("/requests/cancel-mine").json()["status"] == "scheduled"
    assert keyed["ada"].delete("/requests/cancel-mine").json()["request_id"] == "cancel-mine"
    assert keyed["operator"].delete("/requests/ada~cancel-mine-too").status_code == 200


def test_cancellation_completes_the_callers_own_ids(keyed: dict[str, httpx.Client]) -> None:
    """A beginning is completed only on request, if it is unique among the scheduled ids of its principal."""
    for name, chosen in (("ada", "half-1"), ("ada", "half-22"), ("bob", "half-23")):
        sent(keyed[name], f"/send/Till/{name}/pay?delay=3600", [1], chosen)
    assert keyed["ada"].delete("/requests/half-2").status_code == 404
    several = keyed["ada"].delete("/requests/half?beginning=true")
    assert several.status_code == 400
    assert "ada~half-1, ada~half-22; write more" in several.json()["error"]["message"]
    assert keyed["bob"].delete("/requests/ada~half-2?beginning=true").status_code == 403
    answer = keyed["ada"].delete("/requests/half-2?beginning=true")
    assert (answer.status_code, answer.json()["request_id"]) == (200, "half-22"), answer.text
    full = keyed["operator"].delete("/requests/ada~half?beginning=true")
    assert (full.status_code, full.json()["request_id"]) == (200, "ada~half-1"), full.text
    assert keyed["bob"].get("/requests/half-23").json()["status"] == "scheduled"
    assert keyed["bob"].delete("/requests/nothing?beginning=true").status_code == 404


def test_stored_id_is_what_handlers_and_traces_show(keyed: dict[str, httpx.Client]) -> None:
    """`penstock.request_id()` and a trace have the stored form, asked for by the chosen one."""
    assert sent(keyed["ada"], "/who/1", {}, "mine").text == "ada~mine"
    trace = keyed["ada"].get("/requests/mine/trace")
    assert (trace.status_code, trace.json()["request_id"]) == (200, "ada~mine"), trace.text


@pytest.mark.parametrize("chosen", ["ada~order-1", "~", "a b", "x" * 1_025])
def test_nobody_chooses_an_id_in_full(keyed: dict[str, httpx.Client], chosen: str) -> None:
    """An id with `~` could be another principal's, and is refused like an empty or a long one."""
    answer = sent(keyed["bob"], "/call/Till/bob/pay", [1], chosen)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request")


NO_TEXT = ("%FF", "%ED%A0%80", "%C0%AF", "", "x" * 9_000)
"""No UTF-8, a lone surrogate, an overlong slash, nothing, and too much: no parameter is any of these."""

NO_ID = ("a%00b", "a%0Ab", "%7F", "%C2%85", "%F0%9F%8D%8E", "a%20b", "x" * 2_000, "~", "a~b~c")
"""A key may hold anything that text may; a request id may not."""

STRANGE = ("..", "%2e%2e%2f%2e%2e%2fetc", "-", "--help", "%25")


def test_hostile_path_is_refused_everywhere(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile name at any place of any path is served or is the caller's error: never 500."""
    answer_file = tmp_path / "answer"
    answer_file.write_bytes(envelope_of(b"{}"))
    program = ("sh", "-c", f"cat >/dev/null; cat '{answer_file}'")
    monkeypatch.setattr(history, "PROGRAM", program)  # it takes any question
    paths = openapi_document(load_app(spec))["paths"]
    asked = [(verb.upper(), path) for path in paths if "{" in path for verb in paths[path]]
    assert {"/requests/{id}", "/requests/{id}/trace", "/tills/{name}/paid"} <= {
        path for _, path in asked
    }
    wrong = []
    with RunningGateway(spec, tmp_path / "data") as gateway:
        place = httpx.URL(gateway.url)
        connection = http.client.HTTPConnection(place.host, place.port, timeout=30)
        for verb, path in asked:
            names = [part for part in path.split("/") if part[:1] == "{"]
            for name in names:
                plain = path.replace(name, "\0")
                for other in names:
                    plain = plain.replace(other, "1")
                never = {*NO_TEXT, *(NO_ID if name == "{id}" else ())}
                if path.removesuffix(f"/{name}") in paths:
                    never.remove("")  # a list, whose path may end with a slash
                for hostile in (*NO_TEXT, *NO_ID, *STRANGE):
                    connection.request(verb, plain.replace("\0", hostile))
                    answer = connection.getresponse()
                    said = answer.read()
                    fits = 400 <= answer.status < 500 and b'"message"' in said
                    if not fits and (hostile in never or answer.status >= 500):
                        wrong.append((verb, path, name, hostile[:30], answer.status))
        connection.close()
    assert not wrong


def test_ids_of_the_log_are_checked() -> None:
    """The command line takes ids in their stored form, and refuses texts that no id can be."""
    assert check_stored("ada~order-1") == RequestId("ada~order-1")
    assert check_stored("order-1") == RequestId("order-1")
    for text in ("", "a~", "a b", "a~b~c", "\udcff"):
        with pytest.raises(RequestError, match="not a request id"):
            check_stored(text)


@pytest.mark.parametrize("rest", ["~~1", "~~s1.0", "~~s1.0~~t", "~~c1", "~~1~~2"])
def test_only_operators_cancel_requests_of_the_application(
    keyed: dict[str, httpx.Client], standing: RunningGateway, rest: str
) -> None:
    """The caller of a request reads what it has scheduled, and cancels none of it: neither a hold nor a time limit."""
    sent(keyed["ada"], "/call/Till/ada/pay", [1], "hold")
    name = RequestId(f"ada~hold{rest}")
    assert standing.driver is not None
    due_us = (int(datetime.now(UTC).timestamp()) + 3_600) * 1_000_000
    standing.driver.log.schedule(Entry(name, encode_continuation(), b"", 1), due_us)
    path = f"/requests/hold{rest}"
    assert keyed["ada"].get(path).json()["status"] == "scheduled"
    for own in (path, f"/requests/{name}", f"{path}?beginning=true", path.replace("~", "%7E")):
        refused = keyed["ada"].delete(own)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert "sent by the application" in refused.json()["error"]["message"]
    assert keyed["ada"].delete("/requests/hol?beginning=true").status_code == 404
    assert keyed["bob"].delete(f"/requests/{name}").status_code == 403
    assert standing.driver.log.scheduled(name) == due_us
    assert keyed["operator"].delete(f"/requests/{name}").status_code == 200
