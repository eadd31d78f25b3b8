"""Where a gateway may listen, and which TLS files it takes."""

import logging
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from penstock.errors import ConfigError
from penstock.gateway.auth.exposure import check_exposure, is_loopback
from penstock.process.config import Config, GatewayConfig

PKCS8 = PrivateFormat.PKCS8


def check(folder: Path, *, keys_exist: bool = False, **settings: object) -> None:
    gateway = GatewayConfig(**settings)  # type: ignore[arg-type]
    check_exposure(Config(folder, gateway=gateway), keys_exist)


def key_file(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    form: PrivateFormat = PKCS8,
    encryption: KeySerializationEncryption | None = None,
) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, form, encryption or NoEncryption()))
    return path


def certificate_file(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    dated = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    path.write_bytes(dated.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "localhost"]
)
def test_loopback_needs_nothing(tmp_path: Path, host: str) -> None:
    """A gateway on loopback needs no keys."""
    assert is_loopback(host)
    check(tmp_path, host=host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "0", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1"]
)
def test_exposure_without_keys_is_refused(tmp_path: Path, host: str) -> None:
    """Beyond loopback a gateway needs keys or an explicit setting; the message says what to do."""
    assert not is_loopback(host)
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, host=host)
    for way in ("penstock keys add", "gateway.jwks", "gateway.open = 1", "127.0.0.1"):
        assert way in str(refused.value)
    check(tmp_path, host=host, keys_exist=True)
    check(tmp_path, host=host, jwks=Path("jwks.json"))
    check(tmp_path, host=host, open=1)


def test_name_counts_with_all_its_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that means a loopback address and another one is exposed."""
    found = [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert not is_loopback("here.example")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    assert is_loopback("here.example")


@pytest.mark.parametrize("host", ["a b", "x" * 300, "é" * 80])
def test_host_that_means_nothing_is_refused(tmp_path: Path, host: str) -> None:
    """A misspelt host is a wrong setting, with any answer of the resolver."""
    with pytest.raises(ConfigError, match=r"gateway\.host"):
        check(tmp_path, host=host)


def test_exposure_in_the_clear_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says when keys cross the network unencrypted, and when every caller is admitted."""
    check(tmp_path, keys_exist=True)
    assert caplog.text == ""
    check(tmp_path, host="0.0.0.0", keys_exist=True)
    assert "unencrypted" in caplog.text
    check(tmp_path, host="0.0.0.0", open=1)
    assert "may do everything" in caplog.text
    check(tmp_path, keys_exist=True, open=1)
    assert "gateway.open = 1 has no effect" in caplog.text


def test_pair_of_tls_files_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A certificate and its key are accepted, and nothing is unencrypted then."""
    caplog.set_level(logging.WARNING)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = certificate_file(tmp_path / "c.pem", key)
    private = key_file(tmp_path / "k.pem", key)
    check(tmp_path, host="::", keys_exist=True, tls_certificate=certificate, tls_key=private)
    assert caplog.text == ""


def test_half_of_tls_is_refused(tmp_path: Path) -> None:
    """One file without the other is a mistake, never plain HTTP."""
    with pytest.raises(ConfigError, match=r"tls_key is set and gateway\.tls_certificate is not"):
        check(tmp_path, tls_key=tmp_path / "k.pem")
    with pytest.raises(ConfigError, match=r"tls_certificate is set and gateway\.tls_key is not"):
        check(tmp_path, tls_certificate=tmp_path / "c.pem")


def test_tls_files_that_cannot_work_are_refused(tmp_path: Path) -> None:
    """Absent, mixed up, foreign, encrypted and old-form files each have their own message."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = certificate_file(tmp_path / "c.pem", key)
    private = key_file(tmp_path / "k.pem", key)
    other = key_file(tmp_path / "o.pem", ec.generate_private_key(ec.SECP256R1()))
    old = key_file(tmp_path / "old.pem", key, PrivateFormat.TraditionalOpenSSL)
    locked = key_file(tmp_path / "l.pem", key, encryption=BestAvailableEncryption(b"secret"))
    for one, two, reason in (
        (certificate, tmp_path / "absent", "absent: No such file"),
        (tmp_path / "absent", private, "absent: No such file"),
        (tmp_path, private, "Is a directory"),
        (certificate, other, "do not fit each other"),
        (certificate, certificate, "is not a PKCS #8 key"),
        (private, private, "cannot be used"),
        (certificate, old, "openssl pkcs8 -topk8"),
        (certificate, locked, "is encrypted"),
    ):
        with pytest.raises(ConfigError, match=r"gateway\.tls_") as refused:
            check(tmp_path, tls_certificate=one, tls_key=two)
        assert reason in str(refused.value)
