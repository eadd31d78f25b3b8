"""The port of an application: refused while another process has it, held until the end.

Gateways share their port (`SO_REUSEPORT`), so two applications would share a port unnoticed, and
each would get some requests of the other. So the process that starts gateways asks first without that
option, and then holds the port with a socket that takes no connections.
"""

import contextlib
import errno
import socket
from collections.abc import Iterator

from penstock.errors import ConfigError


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Hold a TCP port until the block ends; gives its number, which port 0 leaves to the system."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # Connections of a former run that linger do not matter.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            taken: int = probe.getsockname()[1]
        holder = socket.socket(family)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((address[0], taken, *address[2:]))
    except OSError as error:
        raise ConfigError(_complaint(host, port, error)) from error
    with holder:
        yield taken


def _complaint(host: str, port: int, error: OSError) -> str:
    where = f"port {port} of {host}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process; stop that process, or choose another --port"
    return f"{where} cannot be used: {error.strerror or error}"
