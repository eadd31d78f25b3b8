"""The processes of an application as a supervisor starts them: driver, standby, SQL view, gateways, generators, appliers, effects, captures.

Each is a command of its own that can be run alone, with the same settings.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from penstock.cli.running import standby
from penstock.cli.running.supervisor import Child
from penstock.errors import PenstockError
from penstock.files.looks import Looks
from penstock.files.roots import journal_root, store_of
from penstock.journal.deployments import NAME, Deployments
from penstock.process import capture_files, effect_files, presence, view_files
from penstock.process.config import Config
from penstock.process.driver_claim import give_up_for_dead
from penstock.process.generator_progress import ROLE
from penstock.process.reports import ReportReader

_STOP_S: Final = 60.0
_PATIENCE_S: Final = 30.0
"""The SQL view starts at the latest after this time; before, it leaves the processor to the driver."""

_SLACK_S: Final = 10.0
"""The time that a gateway may take to end after it has answered its requests."""


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """The options of the command line that each child process gets, too.

    Attributes:
        app: The application, as the command line names it.
        config: The value of `--config`.
        assignments: `name=value` of each setting that an option gave.
        development: Whether gateways offer a developer's pages and actions.
        generates: Whether the generators of the application run.
        standby: Whether a second driver waits, ready to take over.
        drives: Whether a driver runs on this host.
    """

    app: str
    config: Path | None
    assignments: Sequence[str]
    development: bool = False
    generates: bool = False
    standby: bool = False
    drives: bool = True


_STANDBY_STOP_S: Final = 5.0
"""A standby that starts Spark hears late of a stop. A kill loses nothing."""

_CAPTURE_STOP_S: Final = 10.0
"""A capture may connect to a database that does not answer. A kill loses and repeats nothing."""

_GENERATOR_STOP_S: Final = 2.0
"""A generator may wait for its source without end. A kill loses and repeats no atom."""


def children_of(options: ChildOptions, settings: Config) -> list[Child]:
    """Return the processes of an application in the order in which they start."""
    data, settings_of_gateways = settings.data, settings.gateway
    reports = ReportReader(data)

    def newest_epoch() -> object:
        newest = reports.newest()
        return None if newest is None else newest.epoch

    flags = ["--dev"] if options.development else []
    stop_s = settings_of_gateways.drain_ms / 1_000 + _SLACK_S
    gateway = _child("gateway", options, settings, flags=flags, stop_s=stop_s)
    generating = _child(ROLE, options, settings, words=("generate",), stop_s=_GENERATOR_STOP_S)
    generating = replace(generating, needed=False, patience_s=_PATIENCE_S, ends=True)
    # With data in an object store, another host may have the lease: then this driver waits for it, as a standby.
    has_rivals = bool(store_of(data))
    waits = ["--standby"] if options.standby or has_rivals else []
    driver = _child("driver", options, settings, flags=waits, progress=newest_epoch)
    if has_rivals:
        driver = replace(
            driver,
            ready=_also_as_standby(driver.ready, data),
            when_dead=partial(give_up_for_dead, data),
        )
    return [
        *([driver] if options.drives else []),
        *([_standby(driver, data)] if options.standby else []),
        replace(
            _child("view", options, settings, words=("view", "serve")),
            needed=False,
            patience_s=_PATIENCE_S,
        ),
        *[gateway] * settings_of_gateways.processes,
        *([generating] if options.generates else []),
    ]


class Followers:
    """The processes that the newest deployment asks for: appliers of views, captures, and the process that calls effects."""

    def __init__(self, options: ChildOptions, settings: Config) -> None:
        self._options = options
        self._settings = settings
        self._deployments = Deployments(journal_root(settings.data))
        self._stamp: object = None
        self._looks = Looks(self._deployments.root, 0.0)
        self._children: list[Child] = []

    def __call__(self) -> Sequence[Child]:
        """Return a child for each of them; a file of deployments that cannot be read changes nothing."""
        if not self._looks.is_due():
            return self._children
        try:
            stamp = self._deployments.root.stamp(NAME)
        except OSError:
            return self._children
        if stamp not in (None, self._stamp):
            with suppress(PenstockError):
                views = self._deployments.views()
                effects = self._deployments.effects()
                captures = self._deployments.captures()
                self._children = [self._applier(view) for view in views]
                self._children += [self._capture(name) for name in captures]
                self._children += [self._effects()] if effects else []
                self._stamp = stamp
        return self._children

    def _applier(self, view: str) -> Child:
        # The views of the deployment are perhaps not in the source that the command line names.
        flags = ["--deployed"]
        child = _child(
            view_files.ROLE,
            self._options,
            self._settings,
            words=("view", "feed"),
            behind=(view,),
            flags=flags,
        )
        return replace(child, needed=False, patience_s=_PATIENCE_S)

    def _capture(self, name: str) -> Child:
        child = _child(
            capture_files.ROLE,
            self._options,
            self._settings,
            words=("capture", "feed"),
            behind=(name,),
            flags=["--deployed"],
            stop_s=_CAPTURE_STOP_S,
        )
        return replace(child, needed=False, patience_s=_PATIENCE_S)

    def _effects(self) -> Child:
        child = _child(
            effect_files.ROLE,
            self._options,
            self._settings,
            words=("effects", "serve"),
            flags=["--deployed"],
        )
        return replace(child, needed=False, patience_s=_PATIENCE_S)


def _stands_by(data: Path, pid: int) -> bool:
    """Say whether a process is a standby that can take over."""
    waiting = presence.find(data, standby.ROLE)
    return any(process.pid == pid and process.details == standby.READY for process in waiting)


def _also_as_standby(drives: Callable[[int], bool], data: Path) -> Callable[[int], bool]:
    # The driver of another host processes requests meanwhile, and may have all slots of a cluster: then this one waits for
    # its end, and the host is as it should be.
    def ready(pid: int) -> bool:
        waiting = presence.find(data, standby.ROLE)
        return drives(pid) or any(process.pid == pid for process in waiting)

    return ready


def _standby(driver: Child, data: Path) -> Child:
    """Return a second driver that waits, with the same command as the first."""
    return replace(
        driver,
        role=standby.ROLE,
        ready=lambda pid: _stands_by(data, pid),
        stop_s=_STANDBY_STOP_S,
        needed=False,
        patience_s=inf,
        spare_of=driver.role,
    )


def _child(
    role: str,
    options: ChildOptions,
    settings: Config,
    *,
    words: Sequence[str] = (),
    behind: Sequence[str] = (),
    flags: Sequence[str] = (),
    progress: Callable[[], object] = lambda: None,
    stop_s: float = _STOP_S,
) -> Child:
    def ready(pid: int) -> bool:
        return any(process.pid == pid for process in presence.find(settings.data, role))

    # -P: a module in the current directory must not replace one of Penstock.
    program = [sys.executable, "-P", "-m", "penstock", *(words or (role,)), options.app, *behind]
    program += ["--supervised", *flags, "--data", str(settings.data)]
    if options.config is not None:
        program += ["--config", str(options.config)]
    for assignment in (*options.assignments, f"gateway.port={settings.gateway.port}"):
        program += ["--set", assignment]
    # A process that comes back, or starts after the driver, runs the code that is in force: the source may have changed since.
    given = (ROLE, view_files.ROLE, effect_files.ROLE, capture_files.ROLE)
    again = () if role in given else ("--deployed",)
    return Child(role, program, ready, progress, stop_s, again=again)
