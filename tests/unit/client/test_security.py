"""Which callers a gateway admits, and which gateways a client trusts."""

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock import Client
from penstock.errors import Forbidden, Unauthenticated, Unreachable
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import parse_scope
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.unit.client.all_types_app import Coat, app

SPEC = "tests.unit.client.all_types_app:app"


def write_certificate(directory: Path) -> GatewayConfig:
    """Make a self-signed certificate for this machine."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    settings = GatewayConfig(
        tls_certificate=directory / "certificate.pem", tls_key=directory / "key.pem"
    )
    settings.tls_certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    settings.tls_key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return settings


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("secure")
    with RunningGateway(SPEC, directory, write_certificate(directory)) as running:
        yield running


def test_certificate_must_be_trusted(secure: RunningGateway) -> None:
    """A client refuses a gateway with an untrusted certificate, and does not try twice."""
    with Client(secure.url, app) as client, pytest.raises(Unreachable, match="not trusted"):
        client.Coat(1).exists()


def test_trust_can_be_given(secure: RunningGateway) -> None:
    """A private certificate is trusted if its file is named; verification can be switched off."""
    for verify in (secure.config.gateway.tls_certificate, False):
        with Client(secure.url, app, verify=verify) as client:
            assert client.Coat(1).exists() is False


def test_key_opens_what_its_scopes_say(tmp_path: Path) -> None:
    """Without a key, or with one for something else, calls are refused, and never sent again."""
    scopes = [parse_scope("call:Coat")]
    _, secret = KeyStore(tmp_path).add("coats", scopes, None, datetime.now(UTC))
    with RunningGateway(SPEC, tmp_path) as running:
        with Client(running.url, app) as client, pytest.raises(Unauthenticated):
            client.Coat.create(1)
        with Client(running.url, app, key=secret) as client:
            assert client.Coat.create(1) == Coat(1)
            with pytest.raises(Forbidden):
                client.Hook.create("h")
