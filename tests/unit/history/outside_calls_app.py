"""An application whose handlers reach outside, each in one way."""

import asyncio
import http.client
import multiprocessing.util
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from penstock import App, entity, key


@entity
class Caller:
    name: str = key()
    calls: int = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls

    def connect(self, port: int) -> int:
        socket.create_connection(("127.0.0.1", port)).close()
        return self.count()

    def connect_and_hide(self, port: int) -> int:
        with suppress(BaseException):
            self.connect(port)
        return self.count()

    def ask(self, port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.connect()
        connection.close()
        return self.count()

    def connect_in_a_thread(self, port: int) -> int:
        def connect() -> None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()

        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        return self.count()

    def connect_in_a_loop(self, port: int) -> int:
        async def connect() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()

        asyncio.run(connect())
        return self.count()

    def start(self, path: str) -> int:
        subprocess.run([sys.executable, "-c", f"open({path!r}, 'a').write('x')"], check=True)
        return self.count()

    def shell(self, path: str) -> int:
        os.system(f"echo x >> {path}")
        return self.count()

    def fork(self, path: str) -> int:
        if (child := os.fork()) == 0:
            os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"x")
            os._exit(0)
        os.waitpid(child, 0)
        return self.count()

    def spawn(self, path: str) -> int:
        script = f"echo x >> {path}".encode()
        child = multiprocessing.util.spawnv_passfds(b"/bin/sh", [b"sh", b"-c", script], [])
        os.waitpid(child, 0)
        return self.count()

    def write(self, path: str) -> int:
        with Path(path).open("a") as file:
            file.write("x")
        return self.count()

    def replace(self, path: str) -> int:
        with suppress(OSError):
            shutil.copyfile(__file__, path)
        return self.count()

    def remove(self, path: str) -> int:
        Path(path).unlink(missing_ok=True)
        return self.count()

    def read(self) -> int:
        import this_is_read  # type: ignore[import-not-found]  # noqa: PLC0415 -- at its first run

        return self.count() + int(this_is_read.NUMBER)


app = App("reaching", Caller)
