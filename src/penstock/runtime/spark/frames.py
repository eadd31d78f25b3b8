"""Frames: the messages between a driver and a resident task, over a Unix socket or over TLS.

On the driver's host the frames are those of `multiprocessing.connection`, over a Unix socket, which needs no encryption.
Between hosts they go over TLS. Each run of a driver has a certificate of its own, which both ends show and demand, so only
the processes that know its key can connect. The key reaches executors inside a task of Spark, over the channel that Spark has
authenticated and encrypted, and is in no file.

A connection whose other end does not answer is lost after about two seconds: the kernel asks an idle end each second, and gives
up sent bytes that nobody acknowledges.
"""

import datetime
import os
import select
import socket
import ssl
import struct
from typing import Final, Protocol

LOST_S: Final = 2
"""A connection is lost when the other end has not answered for so many seconds."""

_FRAME_S: Final = 30.0
"""A frame that has begun, and of which nothing comes for so long, is incomplete for good."""

_BYTES_MAX: Final = 1 << 30
_LENGTH: Final = struct.Struct("<I")
_CHUNK: Final = 1 << 20


class Frames(Protocol):
    """A stream of frames in both directions, for one thread at a time. `multiprocessing.connection.Connection` is one."""

    def send_bytes(self, buf: bytes, /) -> None:
        """Send a frame; raises OSError."""

    def recv_bytes(self, maxlength: int | None = None, /) -> bytes:
        """Wait for a frame, and return it; raises EOFError at the end of the stream, and OSError."""

    def poll(self, timeout: float | None = 0.0, /) -> bool:
        """Say whether a frame has begun or the stream has ended, after at most so many seconds; None: as long as it takes."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""

    def close(self) -> None:
        """Close this end."""


class TlsFrames:
    """Frames over a TLS connection whose handshake is done."""

    def __init__(self, channel: ssl.SSLSocket) -> None:
        self._channel = channel
        channel.settimeout(_FRAME_S)

    def send_bytes(self, data: bytes, /) -> None:
        """Send a frame."""
        self._channel.sendall(_LENGTH.pack(len(data)) + data)

    def recv_bytes(self, maxlength: int | None = None, /) -> bytes:
        """Wait for a frame, and return it."""
        self.poll(None)
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > (_BYTES_MAX if maxlength is None else maxlength):
            raise OSError(f"a frame of {length} bytes is too long")
        return self._exactly(length)

    def poll(self, timeout: float | None = 0.0, /) -> bool:
        """Say whether a frame has begun or the stream has ended."""
        if self._channel.pending():
            return True
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1_000))

    @property
    def peer(self) -> str:
        """The address of the other end."""
        return str(self._channel.getpeername()[0])

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._channel.fileno()

    def close(self) -> None:
        """Close this end."""
        self._channel.close()

    def _exactly(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._channel.recv(min(length, _CHUNK))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def watch(channel: socket.socket) -> None:
    """Let the kernel find out soon that the other end of a connection does not answer."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_S * 1_000)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def new_credentials() -> bytes:
    """Make a key for one run and its certificate, as PEM."""
    # Only a driver of several hosts needs this library.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock run")])
    # The clocks of hosts may differ, and a run may last for years; its key ends with it.
    now, year = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=366)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - year)
        .not_valid_after(now + 30 * year)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(encoding)


def context_of(credentials: bytes, *, is_driver: bool) -> ssl.SSLContext:
    """Return the settings of connections between the processes that have the credentials of a run."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_driver else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = (
        False  # the key of the run proves the host; its address does not matter
    )
    context.verify_mode = ssl.CERT_REQUIRED
    if is_driver:
        # A session ticket is not a frame, and a reader that waits for a frame would begin to read it.
        context.num_tickets = 0
    # The library reads only files, and this file is in memory.
    descriptor = os.memfd_create("credentials")
    try:
        os.write(descriptor, credentials)
        path = f"/proc/self/fd/{descriptor}"
        context.load_cert_chain(path)
        context.load_verify_locations(path)
    finally:
        os.close(descriptor)
    return context


def connect(address: tuple[str, int], credentials: bytes, timeout_s: float) -> TlsFrames:
    """Connect to the driver of a run.

    Raises:
        OSError: It does not answer, or has other credentials.
    """
    channel = socket.create_connection(address, timeout_s)
    try:
        watch(channel)
        return TlsFrames(context_of(credentials, is_driver=False).wrap_socket(channel))
    except BaseException:
        channel.close()
        raise
