"""Checks the address of a gateway: other machines reach it only with keys, tokens, or `gateway.open`.

Promises that a gateway is not open to other machines by mistake, and that TLS files which cannot
work are refused before a port is opened. A host name is resolved: it is loopback only if all its
addresses are.
"""

import ipaddress
import logging
import socket
import ssl
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.process.config import Config, GatewayConfig

_log = logging.getLogger(__name__)

NOT_SET: Final = Path()
_PKCS8: Final = b"-----BEGIN PRIVATE KEY-----"
_ENCRYPTED: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


def check_exposure(config: Config, keys_exist: bool) -> None:  # noqa: FBT001 -- one fact
    """Check the address and the TLS files of a gateway before it opens its port."""
    settings = config.gateway
    check_tls(settings)
    guarded = keys_exist or settings.jwks != NOT_SET
    if guarded and settings.open:
        _log.warning(
            "gateway.open = 1 has no effect, because there are keys or gateway.jwks is set"
        )
    if is_loopback(settings.host):
        return
    if not guarded and not settings.open:
        raise ConfigError(
            f"gateway.host = {settings.host!r} is reached from other machines, and there are "
            "neither API keys nor gateway.jwks. Make a key first "
            "(penstock keys add NAME --scope '*' APP), or set gateway.jwks, or use the host "
            "127.0.0.1, or set gateway.open = 1 to accept every caller"
        )
    if not guarded:
        _log.warning("every caller that reaches %s may do everything", settings.host)
    if settings.tls_certificate == NOT_SET:
        _log.warning(
            "keys, tokens and data cross the network unencrypted: %s is reached from other "
            "machines; set gateway.tls_certificate and gateway.tls_key, or use a proxy with TLS",
            settings.host,
        )


def check_tls(settings: GatewayConfig) -> None:
    """Check that both TLS files or neither are set, and that they are readable and fit each other."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate == NOT_SET and key == NOT_SET:
        return
    if NOT_SET in (certificate, key):
        present, missing = ("tls_key", "tls_certificate")
        if key == NOT_SET:
            present, missing = missing, present
        raise ConfigError(f"gateway.{present} is set and gateway.{missing} is not; TLS needs both")
    _readable("tls_certificate", certificate)
    _check_key(key, _readable("tls_key", key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        mismatched = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        problem = "do not fit each other" if mismatched else f"cannot be used: {error}"
        raise ConfigError(
            f"gateway.tls_certificate = {certificate} and gateway.tls_key = {key} {problem}"
        ) from error


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a host: all addresses of the name are loopback."""
    if not host:
        return False  # every interface
    try:
        return _is_loopback_address(host)
    except ValueError:
        pass
    try:
        resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"gateway.host = {host!r}: it cannot be resolved ({error})") from error
    return all(_is_loopback_address(str(address[0])) for *_, address in resolved)


def _is_loopback_address(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _readable(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"gateway.{name} = {path}: {error.strerror}") from error


def _check_key(path: Path, data: bytes) -> None:
    """Check the form of a key: the HTTP server reads unencrypted PKCS #8 only."""
    if _ENCRYPTED in data:
        raise ConfigError(
            f"gateway.tls_key = {path} is encrypted; openssl pkcs8 -in {path} -out FILE writes an "
            "unencrypted one"
        )
    if _PKCS8 not in data:
        raise ConfigError(
            f"gateway.tls_key = {path} is not a PKCS #8 key in PEM form; "
            f"openssl pkcs8 -topk8 -nocrypt -in {path} -out FILE converts it"
        )
