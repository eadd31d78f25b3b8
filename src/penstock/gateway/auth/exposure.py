"""Where a gateway may listen: beyond this machine only with keys, tokens, or by an explicit word.

Promises that nobody is let in from elsewhere by oversight, and that TLS files which cannot work
are refused before a port is opened. An address that is given by name is looked up: it is loopback
only if all that it resolves to is.
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
    """Check address and TLS files of a gateway that is about to open its port.

    Raises:
        ConfigError: It would serve strangers, its address is none, or its TLS files cannot be used.
    """
    settings = config.gateway
    check_tls(settings)
    guarded = keys_exist or settings.jwks != NOT_SET
    if guarded and settings.open:
        _log.warning("gateway.open = 1 has no effect: there are keys, or gateway.jwks")
    if is_loopback(settings.host):
        return
    if not guarded and not settings.open:
        raise ConfigError(
            f"gateway.host = {settings.host!r} is reached from other machines, and there are "
            "neither API keys nor gateway.jwks. Make a key first "
            "(penstock keys add NAME --scope '*' APP), or set gateway.jwks, or keep to "
            "127.0.0.1, or let everybody in with gateway.open = 1"
        )
    if not guarded:
        _log.warning("everybody who reaches %s may do everything", settings.host)
    if settings.tls_certificate == NOT_SET:
        _log.warning(
            "keys, tokens and data cross the network in the clear: %s is reached from other "
            "machines; set gateway.tls_certificate and gateway.tls_key, or let a proxy speak TLS",
            settings.host,
        )


def check_tls(settings: GatewayConfig) -> None:
    """Check that TLS files are both there or both absent, readable, and belong together.

    Raises:
        ConfigError: They cannot be used; says which, and what would help.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate == NOT_SET and key == NOT_SET:
        return
    if NOT_SET in (certificate, key):
        given, missing = ("tls_key", "tls_certificate")
        if key == NOT_SET:
            given, missing = missing, given
        raise ConfigError(f"gateway.{given} is set and gateway.{missing} is not; TLS takes both")
    _readable("tls_certificate", certificate)
    _check_key(key, _readable("tls_key", key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        mismatched = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        what = "are no pair" if mismatched else f"cannot be used: {error}"
        raise ConfigError(
            f"gateway.tls_certificate = {certificate} and gateway.tls_key = {key} {what}"
        ) from error


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address; a name counts with all its addresses.

    Raises:
        ConfigError: It is a name that means nothing here.
    """
    if not host:
        return False  # every interface
    try:
        return _is_loopback_address(host)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"gateway.host = {host!r}: it cannot be resolved ({error})") from error
    return all(_is_loopback_address(str(address[0])) for *_, address in found)


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
    """Check a key's form: the HTTP server takes PKCS #8 only, and nobody is there to ask."""
    if _ENCRYPTED in data:
        raise ConfigError(
            f"gateway.tls_key = {path} is encrypted; openssl pkcs8 -in {path} -out FILE writes one "
            "that is not"
        )
    if _PKCS8 not in data:
        raise ConfigError(
            f"gateway.tls_key = {path} is no PKCS #8 key in PEM form; "
            f"openssl pkcs8 -topk8 -nocrypt -in {path} -out FILE makes one of it"
        )
