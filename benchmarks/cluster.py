"""A throw-away PostgreSQL cluster from the packages of the machine.

It lives in a temporary directory on a disk, listens on a Unix socket and on no port but one that the
settings name, and is gone when its `with` block ends. Durability is PostgreSQL's default and is never relaxed: `fsync`,
`full_page_writes` and `synchronous_commit` are on. What is tuned is memory, checkpoints and
parallel workers, in the server's favour. PostgreSQL refuses to run as root: root starts it as the
user `postgres`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from penstock.files.temporary_folder import temporary_folder

USER: Final = "benchmark"
SERVER_USER: Final = "postgres"
START_S: Final = 60

SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "wal_buffers": "64MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "jit": "off",
    "max_connections": "64",
    "log_min_messages": "fatal",
}


@dataclass(slots=True)
class Cluster:
    """A server.

    Attributes:
        socket: Directory of its Unix socket.
        programs: Directory of PostgreSQL's programs.
        version: What `postgres --version` says.
        settings: The settings of the next start.
    """

    socket: Path
    programs: Path
    version: str
    settings: Mapping[str, str]
    _user: str
    _server: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """The connection string of the benchmark's user and database."""
        return f"host={self.socket} port={self.port} user={USER} dbname=postgres"

    @property
    def port(self) -> str:
        """The port, which is a part of the socket's name, too."""
        return self.settings.get("port", "5432")

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises:
            RuntimeError: It does not.
        """
        command: list[str | Path] = [self.programs / "postgres", "-D", self.socket / "data"]
        for name, value in {"unix_socket_directories": str(self.socket), **self.settings}.items():
            command += ["-c", f"{name}={value}"]
        self._server = subprocess.Popen(
            command, cwd=self.socket, user=self._user, start_new_session=True
        )
        self._await(self._server)

    def stop(self) -> None:
        """Stop the server without waiting for its clients."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            self._server.wait()
            self._server = None

    def kill(self) -> None:
        """Kill the server; the processes of its clients end by themselves, in the middle of their work."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server during the block, as a machine without time does; connections stay open."""
        assert self._server is not None, "the server runs"
        server = psutil.Process(self._server.pid)
        processes = [server, *server.children(recursive=True)]
        for each in processes:
            each.suspend()
        try:
            yield
        finally:
            for each in processes:
                with suppress(psutil.NoSuchProcess):
                    each.resume()

    def _await(self, server: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + START_S
        ready: list[str | Path] = [self.programs / "pg_isready", "--quiet", "--host", self.socket]
        ready += ["--username", USER, "--port", self.port]
        while subprocess.run([*ready, "--dbname", "postgres"], check=False).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start; its messages are above")
            time.sleep(0.05)


@contextmanager
def running_cluster(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Cluster]:
    """Start a server on the disk of a directory; stop it and remove everything afterwards.

    Raises:
        FileNotFoundError: PostgreSQL is not installed.
        RuntimeError: The server does not start.
    """
    programs = _programs()
    server_user = SERVER_USER if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    # The server of a killed program ends by itself within a minute after the next program has removed its files.
    with temporary_folder("postgres", directory) as folder:
        folder.chmod(0o711)  # the user of the server enters it, and another user does not read it
        home = folder / "server"
        home.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(home, SERVER_USER)
        data = home / "data"
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                data,
                "-U",
                USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-locale",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=home,
            user=server_user,
        )
        version = subprocess.check_output([programs / "postgres", "--version"], text=True)
        cluster = Cluster(home, programs, version.strip(), settings, server_user)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def _programs() -> Path:
    """Find the newest server; Debian keeps its programs off the path.

    Raises:
        FileNotFoundError: There is none.
    """
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: float(one.parts[-3])
    )
    if found:
        return found[-1].parent
    if (elsewhere := shutil.which("initdb")) is not None:
        return Path(elsewhere).parent
    raise FileNotFoundError("PostgreSQL is not installed; on Debian: apt install postgresql")
