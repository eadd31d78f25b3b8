"""Ready-made effects, in the processes that call them, against real servers."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import DefinitionError, http, mail, webhook
from penstock.base.ids import Epoch, RequestId
from penstock.base.webhook_signature import check_signature
from penstock.effects.callers import Call, CallEnd, Caller, CallerCode, start_caller
from penstock.effects.secrets import Secrets
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.model.request import Request
from penstock.model.waiting_effect import waiting_row
from tests.effects.hook_app import app
from tests.effects.outside import Mailbox, Side, post_office, sides
from tests.own_certificate import own_certificate

SENT_US = 1_700_000_000_000_000
KEYS = {"CRM_KEY": "whsec_" + "bmV3" * 10, "CRM_KEY_OLD": "whsec_" + "b2xk" * 10}


class Outside:
    """The other systems, and the processes that call them."""

    def __init__(
        self, servers: list[Side], mails: Mailbox, plain: Mailbox, code: CallerCode
    ) -> None:
        self.side, self.other = servers
        self.mails, self.plain = mails, plain
        self._callers: dict[bool, Caller] = {}
        self._code = code
        self._number = 0

    def call(self, name: str, *arguments: Any, **named: Any) -> CallEnd:
        """Call an effect, and return the end of the call."""
        on_loop = name not in ("post", "plain")
        if on_loop not in self._callers:
            others = [*self._callers.values()]
            self._callers[on_loop] = start_caller(self._code, on_loop=on_loop, others=others)
        caller, self._number = self._callers[on_loop], self._number + 1
        encoded = [msgspec.Raw(msgspec.msgpack.encode(given)) for given in (arguments, named)]
        row = waiting_row(RequestId("r~~1"), Request("", None, name, *encoded), SENT_US)
        caller.call(Call(self._number, f"id-{self._number}", row, 30.0), time.monotonic() + 30)
        assert caller.flush()
        while True:
            assert wait([caller.source], 60), "the call does not end"
            ends, has_ended = caller.ends()
            assert not has_ended, caller.end()
            if ends:
                return ends[0]

    def result(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Return the result of an effect that succeeds."""
        end = self.call(name, *arguments, **named)
        assert end.value is not None, end.error
        return msgspec.msgpack.decode(end.value)

    def close(self) -> None:
        """End the processes."""
        for caller in self._callers.values():
            caller.end()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """Two HTTP servers, an SMTP server with TLS and one without, and callers."""
    folder = tmp_path_factory.mktemp("outside")
    certificate = own_certificate(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    with (
        sides(2) as servers,
        post_office(tls) as (mails, port),
        post_office() as (plain, plain_port),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        secrets = Secrets(
            {
                **KEYS,
                "SIDE": servers[0].url,
                "CARD_KEY": "sk_live_4242",
                "SMTP": f"127.0.0.1:{port}",
                "PLAIN": f"127.0.0.1:{plain_port}",
                "SMTP_PASSWORD": "p%40ss%2Fword",
            },
            {},
        )
        code = CallerCode(app, folder, secrets, 512 << 20, 1 << 20, 0, threading.Lock())
        made = Outside(servers, mails, plain, code)
        try:
            yield made
        finally:
            made.close()


def test_a_call_has_the_id_of_its_effect_and_the_secrets_of_its_declaration(
    outside: Outside,
) -> None:
    """The result has the declared headers of the answer alone."""
    answer = outside.result("card", "POST", "/charges", json={"cents": 5}, query={"a": "b c&d"})
    assert answer == {"status": 200, "body": b'{"id": "ch_1"}', "headers": {"etag": "e1"}}
    seen = outside.side.seen[-1]
    assert (seen.verb, seen.path, seen.body) == ("POST", "/v1/charges?a=b+c%26d", b'{"cents":5}')
    assert seen.headers["authorization"] == "Bearer sk_live_4242"
    assert seen.headers["idempotency-key"] == f"id-{outside._number}"
    assert seen.headers["content-type"] == "application/json"
    assert outside.result("card", "GET", "/packed")["body"] == b'{"id": "ch_1"}'


@pytest.mark.parametrize(
    ("path", "is_final", "after_s"),
    [
        ("/status-400", True, None),
        ("/status-404", True, None),
        ("/status-409", False, None),
        ("/status-429-7", False, 7.0),
        ("/status-503-Wed, 21 Oct 2015 07:28:00 GMT", False, 0.0),
        ("/status-500", False, None),
        ("/status-501", True, None),
        ("/cut", False, None),
    ],
)
def test_the_status_decides_whether_a_call_is_tried_again(
    outside: Outside, path: str, *, is_final: bool, after_s: float | None
) -> None:
    """`Retry-After` is obeyed; the error has neither secrets nor the query."""
    path = path.replace(" ", "%20")
    end = outside.call("card", "POST", path, query={"email": "ann@example.org"})
    assert (end.is_final, end.after_s) == (is_final, after_s), end.error
    assert "sk_live" not in end.error
    assert "ann@" not in end.error
    assert "/v1/" in end.error


def test_an_effect_that_the_code_lacks_fails_for_good(outside: Outside, tmp_path: Path) -> None:
    """Its process goes on as long as a deployment ever had effects, and says what to do."""
    end = outside.call("gone", "o1")
    assert end.is_final
    assert "has no effect gone any more; deploy it again, and then retry" in end.error
    deployments = Deployments(tmp_path)
    for number, effects in enumerate((["charge", "mail"], ["charge"], [])):
        code = DeployedCode(str(number), "m", "app", "3.11", {})
        deployments.record(Epoch(number), 0, code, {}, effects=effects)
    assert deployments.effects() == ("charge", "mail")


def test_a_declared_status_is_a_result(outside: Outside) -> None:
    """So a refusal that the application expects has its body."""
    assert outside.result("card", "POST", "/status-402")["status"] == 402


def test_redirects_stay_on_the_host(outside: Outside) -> None:
    """They keep verb and body, or the call fails; with `any`, the other host gets no declared header."""
    outside.result("card", "POST", "/to-307", json=1)
    assert (outside.side.seen[-1].verb, outside.side.seen[-1].body) == ("POST", b"1")
    outside.result("card", "POST", "/to-303", json=1)
    assert (outside.side.seen[-1].verb, outside.side.seen[-1].body) == ("GET", b"")
    for path, told in (
        ("/to-302", "has changed"),
        ("/away", "another host"),
        ("/round", "more than 5"),
    ):
        end = outside.call("card", "POST", path, json=1)
        assert end.is_final
        assert told in end.error
    assert outside.other.seen == []
    outside.result("anywhere", "POST", "/away", json=1)
    [seen] = outside.other.seen
    assert "x-key" not in seen.headers
    assert seen.body == b"1"
    assert "x-key" in outside.side.seen[-1].headers


def test_an_answer_has_a_bound(outside: Outside) -> None:
    """Also one that grows when it is unpacked."""
    for path in ("/large", "/bomb"):
        end = outside.call("card", "POST", path)
        assert end.is_final
        assert "more than answer_bytes = 10000 bytes" in end.error


@pytest.mark.parametrize(
    ("verb", "path", "named"),
    [
        ("POST", "charges", {}),
        ("POST", "/../admin", {}),
        ("POST", "/%2e%2E/admin", {}),
        ("POST", "@evil.example/", {}),
        ("POST", "/a?b", {}),
        ("POST", "/a b", {}),
        ("POST", "/a\r\nX: y", {}),
        ("BREW", "/a", {}),
        ("POST", "/a", {"headers": {"Host": "evil.example"}}),
        ("POST", "/a", {"headers": {"X-A": "a\r\nX-B: b"}}),
        ("POST", "/a", {"json": 1, "body": b"1"}),
    ],
)
def test_arguments_cannot_lead_elsewhere(
    outside: Outside, verb: str, path: str, named: dict[str, Any]
) -> None:
    """They are refused for good, and nothing is called."""
    before = len(outside.side.seen)
    assert outside.call("card", verb, path, **named).is_final
    assert len(outside.side.seen) == before


def test_a_webhook_is_signed_with_each_key(outside: Outside) -> None:
    """A receiver that knows one of them accepts it; the body has the time of the send."""
    assert outside.result("crm", "order.paid", {"order": "o1"}) == 200
    seen = outside.side.seen[-1]
    for name, secret in KEYS.items():
        now_s = float(seen.headers["webhook-timestamp"])
        signed = check_signature("standard", {name: secret}, seen.headers, seen.body, now_s, 1.0)
        assert signed == seen.headers["idempotency-key"] == f"id-{outside._number}"
    assert msgspec.json.decode(seen.body) == {
        "type": "order.paid",
        "timestamp": "2023-11-14T22:13:20Z",
        "data": {"order": "o1"},
    }


def _mail_in(envelope: Any) -> EmailMessage:
    mail = message_from_bytes(envelope.content, policy=default)
    assert isinstance(mail, EmailMessage)
    return mail


def test_a_mail_goes_over_tls(outside: Outside) -> None:
    """Its id is that of the effect, so that a second copy is recognised."""
    html = {
        "html": "<b>On its way</b>",
        "copy_to": ["bob@example.org"],
        "reply_to": "help@shop.example",
    }
    sent = outside.result("post", ["Ann <ann@example.org>"], "Grüße", "Auf dem Weg", **html)
    assert sent == {"message_id": f"<id-{outside._number}@shop.example>", "refused": {}}
    [envelope] = outside.mails.mails
    assert envelope.mail_from == "shop@shop.example"
    assert envelope.rcpt_tos == ["ann@example.org", "bob@example.org"]
    got = _mail_in(envelope)
    assert (got["Subject"], got["Message-ID"]) == ("Grüße", sent["message_id"])
    assert got["Date"].datetime.timestamp() == SENT_US / 1e6
    body = got.get_body(("plain",))
    assert body is not None
    assert body.get_content().strip() == "Auf dem Weg"


def test_the_reply_of_the_mail_server_decides(outside: Outside) -> None:
    """500 and more is for good; a mail that one recipient gets is sent; no error has an address."""
    gone = outside.call("plain", ["nobody@example.org"], "s", "t")
    assert gone.is_final
    assert "550 no such user: <recipient>" in gone.error
    later = outside.call("plain", ["nobody@example.org", "later@example.org"], "s", "t")
    assert not later.is_final
    assert "450 <recipient> is busy" in later.error
    before = len(outside.plain.mails)
    sent = outside.result("plain", ["ann@example.org", "nobody@example.org"], "s", "t")
    assert sent["refused"] == {"nobody@example.org": "550 no such user: <recipient>"}
    assert len(outside.plain.mails) == before + 1
    for to, subject in (
        (["ann@example.org"], "a\r\nBcc: eve@example.org"),
        ([], "s"),
        (["ann"], "s"),
    ):
        assert outside.call("plain", to, subject, "t").is_final


def test_a_mail_is_never_sent_without_tls(outside: Outside, tmp_path: Path) -> None:
    """A server without STARTTLS, and one whose certificate is not trusted, get nothing."""
    before = len(outside.plain.mails)
    port = outside._code.secrets.get("PLAIN")
    secrets = Secrets({"SMTP": port or "", "SMTP_PASSWORD": "x"}, {})
    other = Outside(
        [outside.side, outside.other],
        outside.mails,
        outside.plain,
        CallerCode(app, tmp_path, secrets, 512 << 20, 1 << 20, 0, threading.Lock()),
    )
    try:
        end = other.call("post", ["ann@example.org"], "s", "t")
    finally:
        other.close()
    assert end.value is None
    assert "STARTTLS" in end.error
    assert len(outside.plain.mails) == before


def test_mistakes_in_a_declaration_have_their_place() -> None:
    """The place is that of the declaration."""
    wrong: list[Callable[[], object]] = [
        lambda: http("no name", "https://a.example"),
        lambda: http("a", "ftp://a.example"),
        lambda: http("a", "https://a.example?x=1"),
        lambda: http("a", "https://a.example", headers={"Host": "b"}),
        lambda: http("a", "https://a.example", redirects="all"),  # type: ignore[arg-type]
        lambda: http("a", "https://a.example", tries=0),
        lambda: webhook("a", "https://a.example", keys=()),
        lambda: webhook("a", "https://a.example", keys="KEY"),
        lambda: mail("a", "imap://a.example", sender="a@b.c"),
        lambda: mail("a", "smtp://a.example", sender="nobody"),
    ]
    for declare in wrong:
        with pytest.raises(DefinitionError, match=r"test_ready_made.py:\d+: "):
            declare()
