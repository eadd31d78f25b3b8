"""A link between two network namespaces that delays each frame and loses some: this kernel has no `netem`.

    python -m tests.cluster.slow_link ONE PORT OTHER PORT DELAY_MS LOSS_PERCENT

It makes a TAP port in each namespace, prints a line when both are there, and carries frames until it is killed; then the ports go.
"""

import ctypes
import fcntl
import os
import random
import selectors
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

NETWORK: Final = 0x40000000  # CLONE_NEWNET
_TUNSETIFF: Final = 0x400454CA
_TAP: Final = 0x0002 | 0x1000  # IFF_TAP, IFF_NO_PI
_FRAME_MAX: Final = 65_536
_FRAMES_AT_ONCE: Final = 64


def enter(namespace: str) -> None:
    """Let this thread be in a network namespace."""
    with Path(f"/run/netns/{namespace}").open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), NETWORK):
            raise OSError(ctypes.get_errno(), "setns")


def port_in(namespace: str, name: str) -> int:
    """Make a TAP port in a namespace, which has it as long as the descriptor is open; this thread stays in the namespace."""
    enter(namespace)
    port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(port, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP))
    return port


def carry(ports: tuple[int, int], delay_s: float, loss: float) -> None:
    """Carry frames between two ports, without an end."""
    # All frames have the same delay, so they come in the order in which they are due.
    due: deque[tuple[float, int, bytes]] = deque()
    ready = selectors.DefaultSelector()
    for port, other in (ports, ports[::-1]):
        ready.register(port, selectors.EVENT_READ, other)
    while True:
        for key, _ in ready.select(max(0.0, due[0][0] - time.monotonic()) if due else None):
            with suppress(BlockingIOError):
                for _ in range(_FRAMES_AT_ONCE):
                    frame = os.read(key.fd, _FRAME_MAX)
                    if random.random() >= loss:
                        due.append((time.monotonic() + delay_s, key.data, frame))
        while due and due[0][0] <= time.monotonic():
            _, port, frame = due.popleft()
            with suppress(
                OSError
            ):  # the port is not up yet, or its queue is full: the frame is lost
                os.write(port, frame)


def main(one: str, its_port: str, other: str, other_port: str, delay_ms: str, loss: str) -> None:
    """Make both ports, and carry frames."""
    ports = port_in(one, its_port), port_in(other, other_port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    carry(ports, float(delay_ms) / 1e3, float(loss) / 100)


if __name__ == "__main__":
    main(*sys.argv[1:])
