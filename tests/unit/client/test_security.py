"""Which callers a gateway admits, and which gateways a client trusts."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import GEN_RUNNING, getgeneratorstate
from pathlib import Path

import pytest

from penstock import Client
from penstock.client.address import Address
from penstock.client.transport import trust
from penstock.errors import ConfigError, Forbidden, Unauthenticated, Unreachable
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import parse_scope
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.own_certificate import own_certificate
from tests.unit.client.all_types_app import Coat, app
from tests.waiting import wait_for

SPEC = "tests.unit.client.all_types_app:app"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("secure")
    own = own_certificate(directory)
    settings = GatewayConfig(tls_certificate=own.certificate, tls_key=own.key)
    with RunningGateway(SPEC, directory, settings) as running:
        yield running


def test_certificate_must_be_trusted(secure: RunningGateway) -> None:
    """A client refuses a gateway with an untrusted certificate, and does not try twice."""
    with Client(secure.url, app) as client, pytest.raises(Unreachable, match="not trusted"):
        client.Coat(1).exists()


def test_authorities_are_read_for_an_encrypted_address_only(tmp_path: Path) -> None:
    """It takes most of the time of a short command; a file of authorities that is named is read in any case."""
    assert trust(Address("HTTPS://shop.example")).get_ca_certs()
    assert not trust(Address("http://shop.example")).get_ca_certs()
    with pytest.raises(ConfigError, match="verify = "):
        trust(Address("http://shop.example"), tmp_path / "missing.pem")


def test_trust_can_be_given(secure: RunningGateway) -> None:
    """A private certificate is trusted if its file is named; verification can be switched off."""
    for verify in (secure.config.gateway.tls_certificate, False):
        with Client(secure.url, app, verify=verify) as client:
            assert client.Coat(1).exists() is False


def test_closing_wakes_a_loop_that_waits_over_tls(secure: RunningGateway) -> None:
    """`close` of the client ends a subscription that another thread waits for, also over an encrypted connection."""
    client = Client(secure.url, app, verify=secure.config.gateway.tls_certificate)
    following = client.subscribe(Coat(1))
    assert next(following).entity is None
    rest: list[object] = []
    thread = threading.Thread(target=lambda: rest.extend(following))
    thread.start()
    wait_for(lambda: getgeneratorstate(following) == GEN_RUNNING, "the wait for a state")
    client.close()
    thread.join(60)
    assert (thread.is_alive(), rest) == (False, [])


def test_key_opens_what_its_scopes_say(tmp_path: Path) -> None:
    """Without a key, or with one for something else, calls are refused, and never sent again."""
    scopes = [parse_scope("call:Coat")]
    _, secret = KeyStore(tmp_path).add("coats", scopes, None, datetime.now(UTC))
    with RunningGateway(SPEC, tmp_path, reads=False) as running:
        with Client(running.url, app) as client, pytest.raises(Unauthenticated):
            client.Coat.create(1)
        with Client(running.url, app, key=secret) as client:
            assert client.Coat.create(1) == Coat(1)
            with pytest.raises(Forbidden):
                client.Hook.create("h")
