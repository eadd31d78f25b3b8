"""Webhooks that come in: a signature stands for a key, and the id of the event for the request id."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pytest

from penstock import App, ConfigError, DefinitionError, Entity, key, readonly, route, signed_by
from penstock.base.webhook_signature import check_signature, standard_headers, standard_key
from penstock.errors import Unauthenticated
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.gateway.auth.webhooks import check_webhooks
from penstock.gateway.openapi.document import openapi_document
from penstock.process.config import GatewayConfig
from tests.effects.hook_app import app
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

SPEC = "tests/effects/hook_app.py"
NEW, OLD = "whsec_" + "bmV3" * 10, "whsec_" + "b2xk" * 10
SECRETS = f"CRM_KEY={NEW}\nSTRIPE_KEY=whsec_stripe\nGITHUB_KEY=hub\n"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of secrets, in the middle of an exchange."""
    path = tmp_path_factory.mktemp("secrets") / "gateway.secrets"
    path.write_text(f"{SECRETS}CRM_KEY_OLD={OLD}\n")
    path.chmod(0o600)
    return path


class Shop(NamedTuple):
    """A client without a key of a gateway that has keys, and the header of a key with all rights."""

    client: httpx.Client
    keyed: dict[str, str]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, secrets: Path) -> Iterator[Shop]:
    """A gateway that runs."""
    data = tmp_path_factory.mktemp("hooks")
    _, admin = KeyStore(data).add("admin", granted(["*"]), None, datetime.now(UTC))
    with (
        RunningGateway(SPEC, data, GatewayConfig(secrets=secrets)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        keyed = {"X-API-Key": admin}
        for order in ("o1", "o2", "o3"):
            assert client.post(f"/call/Order/{order}/create", headers=keyed).status_code == 200
        yield Shop(client, keyed)


def sent(  # noqa: PLR0913 -- a webhook and its mistakes
    shop: Shop,
    order: str,
    event: str,
    body: Any,
    *,
    secret: str = NEW,
    age_s: int = 0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> httpx.Response:
    """Send a webhook as Standard Webhooks describes it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    signed = standard_headers([standard_key("K", secret)], event, int(time.time()) - age_s, data)
    return shop.client.post(f"/hooks/crm/{order}", content=data, headers={**signed, **headers})


def test_a_signed_webhook_is_a_request_with_the_id_of_its_event(shop: Shop) -> None:
    """It needs no key; a second delivery, signed again, gets the first reply; another sender may have the same ids."""
    first = sent(shop, "o1", "evt-1", {"id": "c1", "cents": 5, "new_field": [1]})
    assert (first.status_code, first.json()) == (202, 5)
    assert first.headers["penstock-request-id"] == "evt-1"
    again = sent(shop, "o1", "evt-1", {"id": "c1", "cents": 5, "new_field": [1]}, age_s=2)
    assert (again.status_code, again.json()) == (202, 5)
    assert again.headers["penstock-epoch"] == first.headers["penstock-epoch"]
    assert sent(shop, "o2", "evt-1", {"id": "c1", "cents": 7}).json() == 7
    other = sent(shop, "o1", "evt-1", {"id": "c1", "cents": 6})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "request-conflict")
    known = shop.client.get("/requests/webhook:Order.change:o1~evt-1", headers=shop.keyed)
    assert known.json()["status"] == "answered"


def test_two_secrets_hold_while_one_is_exchanged(shop: Shop, secrets: Path) -> None:
    """The file may change while the gateway runs: then the old secret is worth nothing."""
    assert sent(shop, "o3", "old-1", {"id": "a", "cents": 1}, secret=OLD).status_code == 202
    secrets.write_text(SECRETS)

    def is_refused() -> bool:
        return sent(shop, "o3", "old-2", {"id": "a", "cents": 1}, secret=OLD).status_code == 401

    wait_for(is_refused, "the refusal of the old secret")
    assert sent(shop, "o3", "new-1", {"id": "a", "cents": 1}).status_code == 202


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"webhook-signature": "v1,AAAA"}, "is wrong"),
        ({"webhook-signature": "v2,x not-base64 v1,%%"}, "is wrong"),
        ({"webhook-id": "another"}, "is wrong"),
        ({"webhook-timestamp": "1e3"}, "number of seconds"),
        (10, "is wrong"),
        (-9_999, "more than 300 s"),
    ],
)
def test_a_wrong_signature_is_refused(shop: Shop, change: dict[str, str] | int, told: str) -> None:
    """The answer says what is wrong, and shows no secret; a key does not help. A number is seconds from now."""
    if isinstance(change, int):
        change = {"webhook-timestamp": str(int(time.time()) + change)}
    answer = sent(shop, "o1", "evt-9", {"id": "x", "cents": 1}, headers={**change, **shop.keyed})
    assert answer.status_code == 401, answer.text
    assert told in answer.json()["error"]["message"]
    assert NEW not in answer.text


def test_only_the_signed_path_leads_to_the_handler(shop: Shop) -> None:
    """Without headers it is 401; at /call, the handler is internal, also for a key with all rights."""
    assert shop.client.post("/hooks/crm/o1", json={"id": "x", "cents": 1}).status_code == 401
    called = shop.client.post(
        "/call/Order/o1/change", json=[{"id": "x", "cents": 1}], headers=shop.keyed
    )
    assert called.status_code == 403


@pytest.mark.parametrize(
    "body", [b"{", b"", b'{"id": 5}, {"id": "x", "cents": 1}', b"[" * 200, b"\xff"]
)
def test_a_signed_body_that_does_not_fit_is_refused(shop: Shop, body: bytes) -> None:
    """It is one JSON value of the declared type."""
    assert sent(shop, "o1", f"bad-{len(body)}", body).status_code == 400


def test_github_and_stripe_sign_in_forms_of_their_own(shop: Shop) -> None:
    """GitHub names the event in a header, Stripe in the body."""
    body = b'{"ref": "main"}'
    digest = hmac.new(b"hub", body, hashlib.sha256).hexdigest()
    github = {"X-GitHub-Delivery": "d-1", "X-Hub-Signature-256": f"sha256={digest}"}
    pushed = shop.client.post("/hooks/github", content=body, headers=github)
    assert (pushed.text, pushed.headers["penstock-request-id"]) == ("main", "d-1")
    body, now = b'{"id": "evt_1", "cents": 9, "livemode": true}', str(int(time.time()))
    digest = hmac.new(b"whsec_stripe", f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    stripe = {"Stripe-Signature": f"t={now},v0=00,v1={digest}"}
    paid = shop.client.post("/hooks/stripe", content=body, headers=stripe)
    assert (paid.json(), paid.headers["penstock-request-id"]) == (9, "evt_1")
    stripe = {"Stripe-Signature": f"t={now},t={now},v1={digest}"}
    assert shop.client.post("/hooks/stripe", content=body, headers=stripe).status_code == 401


def test_the_signature_is_that_of_the_standard() -> None:
    """The vector is that of the specification's libraries."""
    headers = standard_headers(
        [standard_key("K", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_missing_secret_is_refused_at_the_start(tmp_path: Path) -> None:
    """The sentence names path, secret and remedy; a file that others may read, or with another line, is refused, too."""
    with pytest.raises(ConfigError, match=r"POST /hooks/crm/\{order_id\} .* secret CRM_KEY or CRM"):
        check_webhooks(app, GatewayConfig())
    path = tmp_path / "secrets"
    with pytest.raises(ConfigError, match="does not exist"):
        check_webhooks(app, GatewayConfig(secrets=path))
    path.write_text("no line")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        check_webhooks(app, GatewayConfig(secrets=path))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="line 1"):
        check_webhooks(app, GatewayConfig(secrets=path))


def test_the_document_describes_the_headers() -> None:
    """The body is the event, and no credential is needed."""
    operation = openapi_document(app, secured=True)["paths"]["/hooks/crm/{order_id}"]["post"]
    assert [each["name"] for each in operation["parameters"]] == [
        "order_id",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    ]
    assert operation["security"] == []
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["$ref"].endswith("Change")


def test_mistakes_in_a_declaration_are_named() -> None:
    """All of them, with their place."""

    class Store(Entity):
        name: str = key()

        @route("POST /a/{name}", signed=signed_by())
        def no_secret(self, event: str) -> None: ...

        @route("POST /b/{name}", signed=signed_by("K"))
        def two(self, event: str, more: int) -> None: ...

        @route("GET /c/{name}", signed=signed_by("K", tolerance=timedelta(0)))
        @readonly
        def reading(self, event: str) -> None: ...

        @route("POST /d/{name}", signed=signed_by("K", form="svix"))  # type: ignore[arg-type]
        @route("POST /e/{name}")
        def both(self, event: str) -> None: ...

    with pytest.raises(DefinitionError) as refused:
        App("stores", Store)
    text = str(refused.value)
    for part in (
        "at least one",
        "has event, more beside the path",
        "is sent with POST",
        "more than 0 s",
        "form='svix' must be one of",
        "both is internal, so no path leads to it",
    ):
        assert part in text, text


def test_many_signatures_cost_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger who sends thousands of signatures with a large body makes the gateway hash the body once for each secret."""
    digest, hashed = hmac.digest, list[int]()

    def counted(key: bytes, content: bytes, method: Any) -> bytes:
        hashed.append(len(content))
        return digest(key, content, method)

    monkeypatch.setattr(hmac, "digest", counted)
    headers = standard_headers([], "e1", 1_000, b"{}") | {"webhook-signature": "v1,AAAA " * 1_000}
    with pytest.raises(Unauthenticated, match="is wrong"):
        check_signature("standard", {"NEW": NEW, "OLD": OLD}, headers, b"{}", 1_000.0, 1.0)
    assert len(hashed) == 2
