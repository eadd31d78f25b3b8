"""TCP ports of servers that a program or a test starts.

A port that the system chooses (port 0) is free again until its server listens, and the system may give it to another process
meanwhile: gateways share ports, so both start, and each gets some requests of the other.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

FIRST: Final = 10_000
END: Final = 32_768
"""From here on the system chooses ports for connections and for port 0."""


def free_port(host: str) -> int:
    """Return a TCP port that is free, and that no other process gets from here while this one lives."""
    claims = _claims()
    while True:
        port = random.SystemRandom().randrange(FIRST, END)
        with suppress(OSError), socket.socket() as probe:
            # Before the lock: this process would get the lock of its own port again.
            probe.bind((host, port))
            if port not in _CLAIMED:
                fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                _CLAIMED.add(port)
                return port


_CLAIMED: Final[set[int]] = set()


@cache
def _claims() -> int:
    """Open the file in which the byte of a port is locked; to close any descriptor of it would let go of all locks."""
    path = Path(tempfile.gettempdir(), f"penstock-ports-{os.getuid()}")
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
