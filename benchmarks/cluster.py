"""A throw-away PostgreSQL cluster from the packages of the machine.

It lives in a temporary directory on a disk, listens on a Unix socket only, and is gone when its
`with` block ends. Durability is PostgreSQL's default and is never relaxed: `fsync`,
`full_page_writes` and `synchronous_commit` are on. What is tuned is memory, checkpoints and
parallel workers, in the server's favour. PostgreSQL refuses to run as root: root starts it as the
user `postgres`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server.

    Attributes:
        socket: Directory of its Unix socket.
        programs: Directory of PostgreSQL's programs.
        version: What `postgres --version` says.
    """

    socket: Path
    programs: Path
    version: str

    @property
    def address(self) -> str:
        """The connection string of the benchmark's user and database."""
        return f"host={self.socket} user={USER} dbname=postgres"


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """Start a server on the disk of a directory; stop it and remove everything afterwards.

    Raises:
        RuntimeError: PostgreSQL is not installed, or the server does not start.
    """
    programs = _programs()
    server_user = SERVER_USER if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    home = Path(tempfile.mkdtemp(dir=directory, prefix="penstock-postgres-"))
    try:
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
        with _server(programs, home, server_user):
            version = subprocess.check_output([programs / "postgres", "--version"], text=True)
            yield Cluster(home, programs, version.strip())
    finally:
        shutil.rmtree(home)


@contextmanager
def _server(programs: Path, home: Path, user: str) -> Iterator[None]:
    command: list[str | Path] = [programs / "postgres", "-D", home / "data", "-k", home]
    for name, value in SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    with subprocess.Popen(command, cwd=home, user=user, start_new_session=True) as server:
        try:
            _await(programs, home, server)
            yield
        finally:
            server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            server.wait()


def _await(programs: Path, home: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    ready: list[str | Path] = [
        programs / "pg_isready",
        "--quiet",
        "--host",
        home,
        "--username",
        USER,
    ]
    while subprocess.run([*ready, "--dbname", "postgres"], check=False).returncode:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("PostgreSQL did not start; its messages are above")
        time.sleep(0.05)


def _programs() -> Path:
    """Find the newest server; Debian keeps its programs off the path.

    Raises:
        RuntimeError: There is none.
    """
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: float(one.parts[-3])
    )
    if found:
        return found[-1].parent
    if (elsewhere := shutil.which("initdb")) is not None:
        return Path(elsewhere).parent
    raise RuntimeError("PostgreSQL is not installed; on Debian: apt install postgresql")
