"""`Cutter`: passes bytes between clients and a server; when told, it cuts all connections, or lets them fall silent."""

import contextlib
import socket
import threading
from typing import Self

from tests.gateway_thread import HOST, end


class Cutter:
    """A network that fails; `cut` ends every open connection, and new ones work again."""

    def __init__(self, target: int) -> None:
        self.connections = 0
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self._open: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="cutter")]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for connection in self._all:
            connection.close()

    def cut(self) -> None:
        """End the open connections."""
        with self._lock:
            for connection in self._open:
                end(connection)
            self._open.clear()

    def silence(self) -> None:
        """Keep the open connections, and pass nothing on any more."""
        with self._lock:
            self._silent.update(self._open)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((HOST, self._target))
            with self._lock:
                self.connections += 1
                self._open += [client, server]
                self._all += [client, server]
            for source, target in ((client, server), (server, client)):
                thread = threading.Thread(target=self._carry, args=(source, target))
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._silent:
                    target.sendall(data)
        end(source)
        end(target)
