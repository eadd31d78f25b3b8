"""One host of a cluster: its settings are checked, and Spark's processes join those of `penstock run`.

The supervisor is that of every application in the foreground. No child ends the others here: a host whose driver cannot run
still runs tasks and answers reads.
"""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from rich.console import Console

from penstock.cli.options import AppOptions
from penstock.cli.running.processes import ChildOptions, children_of
from penstock.cli.running.run import foreground_of
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.deployment.code_in_force import code_in_force
from penstock.errors import ConfigError
from penstock.files.layout import RUN
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.disk_space import check_space
from penstock.process.host_reporter import clock_ahead_s
from penstock.process.hosts import CLOCK_S, host_standings
from penstock.runtime.spark import standalone

if TYPE_CHECKING:
    from penstock.cli.running.foreground import Foreground

MASTER: Final = standalone.MASTER
WORKER: Final = standalone.WORKER
_STOP_S: Final = 15.0
_LOOK_S: Final = 1.0
_SILENCE_S: Final = 45.0
"""After so long without an answer of the master, a sentence names the cause."""


class SparkWatch:
    """The words of Spark's master and worker of this host about themselves."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._serves: dict[str, bool] = {MASTER: False, WORKER: False}
        self._refused = False
        self._since_s = time.monotonic()

    def saw(self, role: str, line: str) -> None:
        """Take a line of a process's output."""
        if role == MASTER:
            self._serves[MASTER] |= standalone.ELECTED in line or standalone.RECOVERED in line
        elif role == WORKER and any(text in line for text in standalone.REGISTERED):
            self._serves[WORKER], self._refused = True, False
        elif role == WORKER and any(text in line for text in standalone.LOST):
            if self._serves[WORKER]:
                self._since_s = time.monotonic()
            self._serves[WORKER] = False
        elif role == WORKER and standalone.REFUSED in line:
            self._refused = True

    def is_serving(self, role: str, _pid: int = 0) -> bool:
        """Say whether a process does its work."""
        return self._serves[role]

    def trouble(self) -> str:
        """Return what is wrong, with the remedy; empty if nothing is, or nothing that lasts."""
        if self._serves[WORKER]:
            return ""
        if self._refused:
            return (
                f"Spark's master at {self._master} refuses the secret of this host: let master_secret name a file with the "
                "same secret on all hosts"
            )
        if time.monotonic() - self._since_s < _SILENCE_S:
            return ""
        return (
            f"Spark's master at {self._master} does not answer: let one host run penstock host --with-master, at the address "
            "that all hosts have as --master, and let its port be open"
        )


def run_host(
    options: AppOptions,
    flags: dict[str, str | int | None],
    *,
    with_master: bool,
    drives: bool,
) -> None:
    """Run the processes of a host until a signal.

    Args:
        flags: Other options by the name of their setting; None if not given.
        with_master: Whether Spark's master runs here, if this host has its address.
        drives: Whether a driver runs here, or waits as a standby.

    Raises:
        ConfigError: A setting, the store, the brokers, the secret or a port cannot be used.
        OSError: The disk is full.
    """
    settings = options.settings(**flags)
    _check(settings)
    with_master = with_master and _has_master(standalone.place_of_master(settings.master))
    options = _with_code(options, settings, drives=drives)
    foreground = foreground_of(options, flags, drives=drives)
    watch = SparkWatch(settings.master)
    spark = _spark_children(settings, watch, with_master=with_master)

    def children(chosen: ChildOptions, present: Config) -> Sequence[Child]:
        return [*spark, *(replace(child, needed=False) for child in children_of(chosen, present))]

    for text in _findings(settings):
        foreground.tell("host", text)
    host_look = _Look(foreground, watch)
    replace(foreground, children=children, saw=watch.saw, trouble=watch.trouble).run(host_look)


class _Look:
    """The look of a supervisor at its host and at its children."""

    def __init__(self, foreground: "Foreground", watch: SparkWatch) -> None:
        self._foreground = foreground
        self._watch = watch
        self._due_s = 0.0
        self._told = ""

    def __call__(self, supervisor: Supervisor) -> None:
        """Look.

        Raises:
            OSError: The disk is full: this host ends, and the cluster goes on.
        """
        supervisor.look()
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _LOOK_S
        trouble = self._watch.trouble()
        if trouble and trouble != self._told:
            self._foreground.tell(WORKER, f"waits: {trouble}")
        self._told = trouble
        if supervisor.failing:
            check_space(self._foreground.settings.data)


def _check(settings: Config) -> None:
    """Refuse settings that make no host of a cluster.

    Raises:
        ConfigError: They do not; names all that is missing.
    """
    complaints = []
    if not settings.store:
        complaints.append(
            "data: name a place in an object store, which all hosts reach: --data s3://BUCKET/PREFIX; an application in a "
            "directory moves there with penstock backup and penstock restore"
        )
    elif not DataDirectory(settings.data).has_log_in_kafka(settings):
        complaints.append(
            "log: name a topic of Kafka, which all hosts reach: --log kafka://HOST:PORT/TOPIC; an embedded log is a file of "
            "one host"
        )
    if not settings.is_cluster:
        complaints.append("master: name Spark's master: --master spark://HOST:7077")
    if complaints:
        count = f"{len(complaints)} settings of a host are missing:\n  "
        raise ConfigError((count if len(complaints) > 1 else "") + "\n  ".join(complaints))
    standalone.own_address(settings.master)


def _has_master(place: standalone.MasterPlace) -> bool:
    """Say whether the address of Spark's master is one of this host.

    Raises:
        ConfigError: It is, and its port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return False
        raise ConfigError(
            f"--with-master: Spark's master cannot listen at {place.url}: {error.strerror or error}; stop what has the port, "
            "let --master name another port on all hosts, or omit --with-master if that is Spark's master"
        ) from error
    return True


def _with_code(options: AppOptions, settings: Config, *, drives: bool) -> AppOptions:
    """Return the options with the application of this host: the deployed code, or else the source.

    A host without a driver, and without a source, waits for the first deployment. A host with a driver deploys its source.

    Raises:
        ConfigError: There is neither.
    """
    is_told = False
    while True:
        code = None if drives and settings.app else code_in_force(settings.data)
        if code is not None:
            return replace(options, app=[code[0]], named=None)
        if settings.app:
            return options
        if drives:
            raise ConfigError(
                "nothing is deployed yet; name the application: penstock host --driver APP"
            )
        if not is_told:
            text = f"nothing is deployed in {settings.store} yet; this host waits for the first penstock host --driver APP"
            Console(stderr=True).print(text, highlight=False, soft_wrap=True)
        is_told = True
        time.sleep(_LOOK_S)


def _spark_children(settings: Config, watch: SparkWatch, *, with_master: bool) -> list[Child]:
    """Return Spark's processes of this host.

    Raises:
        ConfigError: Java or the secret is missing.
    """
    folder = settings.data / RUN / standalone.FOLDER
    standalone.prepare(folder, settings)
    # One more, for a standby: it has a Spark application of its own on the same hosts.
    cores = (settings.host_cores or os.cpu_count() or 1) + 1
    commands = {WORKER: standalone.worker_command(folder, settings, cores)}
    if with_master:
        commands = {MASTER: standalone.master_command(folder, settings), **commands}
    return [
        Child(role, command, partial(watch.is_serving, role), stop_s=_STOP_S, needed=False)
        for role, command in commands.items()
    ]


def _findings(settings: Config) -> Iterator[str]:
    """Yield the facts that an operator should know before this host starts."""
    ahead_s = clock_ahead_s(DataDirectory(settings.data).shared)
    if abs(ahead_s) >= CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield (
            f"has a clock {abs(ahead_s):,.0f} s {way} that of the object store; no outcome depends on it, but stores refuse "
            "requests of a clock that is a quarter of an hour wrong: let a time service set it"
        )
    own = version("penstock"), "{}.{}".format(*sys.version_info)
    for other in host_standings(settings.data):
        report = other.report
        if other.has_lease and (report.penstock, report.python) != own:
            yield (
                f"has Penstock {own[0]} on Python {own[1]}, and the driver on {report.name} has Penstock {report.penstock} on "
                f"Python {report.python}; the driver gives it no tasks until both have the same"
            )
