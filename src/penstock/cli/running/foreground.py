"""An application in the foreground, for `penstock run` and `penstock dev`: a supervisor and a status line.

All processes have ended when it returns. However it ends, acknowledged requests are durable.
"""

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.cli.running.processes import ChildOptions, Followers, children_of
from penstock.cli.running.replaced_source import replacement_text
from penstock.cli.running.status_line import shown
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.errors import ConfigError, PenstockError
from penstock.files import private
from penstock.files.layout import RUN, SUPERVISOR_LOCK
from penstock.files.lock import Claimed, claim
from penstock.files.roots import check_store, store_of
from penstock.gateway.auth.exposure import NOT_SET, check_exposure
from penstock.gateway.auth.keys import KeyStore
from penstock.history.moved_log import begin_log, end_log
from penstock.journal.deployments import Deployment
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.route import Route
from penstock.model.versions.schema_change import SchemaChange
from penstock.native import choice
from penstock.orders.partitions import ask_for_partitions
from penstock.orders.pauses import PauseFile, describe
from penstock.process import presence, startup
from penstock.process.config import Config
from penstock.process.disk_space import check_space
from penstock.process.metrics import clear
from penstock.process.stop import Stop

if TYPE_CHECKING:
    from rich.console import Console

ROLE: Final = "supervisor"
LOOK_S: Final = 0.1
_STYLES: Final = {
    "driver": "cyan",
    "standby": "cyan",
    "view": "magenta",
    "gateway": "green",
    "generator": "blue",
    "applier": "magenta",
    "effects": "blue",
    "spark-master": "yellow",
    "spark-worker": "yellow",
}
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 -- no bind

_log = logging.getLogger(__name__)

Look = Callable[[Supervisor], None]


@dataclass(frozen=True, slots=True)
class Foreground:
    """An application that a command runs.

    Attributes:
        settings: The settings that follow from the options.
        console: The place for messages and for the output of the processes.
        children: Returns the processes to run.
        schema_changes: The changes of stored classes that the driver will deploy.
        tried: The results of the trial of functions with `@migrate`, a sentence for each class.
        abandons_log: Whether the log of another host may be abandoned; see `begin_log`.
        saw: Takes each line of a child's output, with the role of the child.
        trouble: Returns the faults of this host, for people; empty without one.
        replacement: The deployment that runs instead of the source; None if the source runs.
    """

    app: App
    options: ChildOptions
    settings: Config
    console: "Console"
    children: Callable[[ChildOptions, Config], Sequence[Child]] = children_of
    schema_changes: Sequence[SchemaChange] = ()
    tried: Sequence[str] = ()
    replacement: Deployment | None = None
    abandons_log: bool = False
    saw: Callable[[str, str], object] = lambda _role, _line: None
    trouble: Callable[[], str] = str

    def run(self, look: Look = Supervisor.look) -> None:
        """Run the processes until a signal; call `look` repeatedly.

        Raises:
            ConfigError: The port is in use, an open network could reach gateways without keys, another
                supervisor or driver runs the application, or a process has invalid options.
            OperationalError: A process has failed too often.
            OSError: The disk is full.
        """
        check_space(self.settings.data)
        check_store(self.settings.data)
        settings, app = self.settings, self.options.app
        check_exposure(settings, KeyStore(settings.data).exists)
        for role in sorted(presence.SINGLE):
            presence.refuse_second(settings.data, role)
        begin_log(settings, abandons=self.abandons_log)
        self._ask_for_partitions()
        with reserved(settings.gateway.host, settings.gateway.port) as port:
            settings = replace(settings, gateway=replace(settings.gateway, port=port))
            children, appliers = (
                self.children(self.options, settings),
                Followers(self.options, settings),
            )
            supervisor = Supervisor(children, self.say, self.tell, appliers)
            url = url_of(settings)
            with (
                self._alone(),
                presence.present(settings.data, ROLE, app, url=url),
                Stop(at_once=supervisor.kill) as stop,
                ExitStack() as stack,
            ):
                clear(settings.data)
                if store_of(settings.data):
                    stack.enter_context(self._reporting(supervisor, settings, url))
                startup.note(settings.data, "view", "it waits for the driver and the gateways")
                try:
                    self._keep_running(supervisor, url, stop, look)
                finally:
                    self._print("stopping gateways, view and driver …")
                    supervisor.stop()
            end_log(settings.data)
            self._print("stopped")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other supervisors out of the data directory."""
        folder = self.settings.data / RUN
        private.create(self.settings.data)
        folder.mkdir(exist_ok=True)
        try:
            descriptor = claim(folder / SUPERVISOR_LOCK)
        except Claimed as error:
            raise ConfigError(
                f"process {error.holder} runs an application in {self.settings.data} already; stop it, or give another folder"
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)

    def _reporting(
        self, supervisor: Supervisor, settings: Config, url: str
    ) -> AbstractContextManager[None]:
        """Say to all hosts how this host stands, until the block ends."""
        from penstock.process.host_reporter import HostReporter, reporting
        from penstock.process.metrics import count_store_requests
        from penstock.sql_view.view_client import view_epoch

        # The processes of this host inherit the place of their counts, those of Spark, too.
        count_store_requests(settings.data)

        def trouble() -> str:
            failing = [f"{role} starts again and again" for role in supervisor.failing]
            return "; ".join(filter(None, (self.trouble(), *failing)))

        return reporting(HostReporter(settings, url, trouble, view_epoch), settings)

    def _ask_for_partitions(self) -> None:
        """Let the driver change the number of partitions, if an option names another one than the journal."""
        if not self.options.drives:
            return
        present = ask_for_partitions(self.settings, self.options.assignments)
        if present is not None:
            wanted = self.settings.partitions
            self._print(
                f"partitions: the first epoch changes the number from {present} to {wanted}"
            )

    @property
    def _for_programs(self) -> bool:
        """Whether the output is JSON, one object in a line."""
        return self.settings.log_format == "json"

    @property
    def _display(self) -> "Console":
        """The place for the status line."""
        from rich.console import Console

        return Console(quiet=True) if self._for_programs else self.console

    def say(self, role: str, line: str) -> None:
        """Print a line of a process's output."""
        from rich.text import Text

        self.saw(role, line)
        if self._for_programs:
            self._relay(role, line)
            return
        self.console.print(Text.assemble((role, _STYLES.get(role, "")), " ", line), soft_wrap=True)

    def _relay(self, role: str, line: str) -> None:
        if line.startswith('{"time": '):
            self.console.file.write(f"{line}\n")
            self.console.file.flush()
        else:  # a line of Java, or an error message: it is printed at every level
            level = max(logging.INFO, _log.getEffectiveLevel())
            _log.log(level, "a process wrote", extra={"process_role": role, "line": line})

    def tell(self, role: str, line: str) -> None:
        """Report an event of a process."""
        from rich.text import Text

        if self._for_programs:
            _log.warning("%s %s", role, line)
            return
        self.console.print(Text.assemble((f"{role} {line}", "bold yellow")), soft_wrap=True)

    def _tell_deviations(self) -> None:
        """Say which deployment runs instead of the source, if one does, and which views the settings alone name."""
        if (deployment := self.replacement) is not None:
            self.tell("source", replacement_text(deployment, self.settings.app))
        known = ", ".join(self.app.views) or "none"
        for name in self.settings.views_without(self.app.views):
            self.tell("settings", f"name a target for {name}, which is no view; the views: {known}")
        captures = self.app.topology.captures
        known = ", ".join(captures) or "none"
        for name in self.settings.captures_without(captures):
            text = f"name a database for {name}, which is no stream of changes; those are: {known}"
            self.tell("settings", text)

    def _keep_running(self, supervisor: Supervisor, url: str, stop: Stop, look: Look) -> None:
        data = self.settings.data
        parts = "driver, view and gateways" if self.options.drives else "view and gateways"
        is_source = not self.options.app.startswith(str(data.absolute()))
        name = self.options.app if is_source else f"{self.app.name}, as it is deployed,"
        starting = f"{name} in {data}: starting {parts}; "
        starting += f"transactions run {choice.describe()} …"
        self._print("\n".join([starting, *map(text_of, self.schema_changes), *self.tried]))
        self._tell_deviations()
        step = partial(look, supervisor)

        def first_epoch_can_run() -> bool:
            return {"driver", "gateway"}.isdisjoint(supervisor.waiting)

        if not self._await(supervisor, stop, step, first_epoch_can_run):
            return
        # These take processor time that the driver needed before; the view starts meanwhile.
        from penstock.cli.running.source_check import warnings_of
        from penstock.process.data_directory import DataDirectory
        from penstock.process.status import status_of

        for warning in warnings_of(self.app):
            self.tell("source", warning)
        with (
            closing(DataDirectory(data).open_journal(self.app)) as journal,
            closing(DataDirectory(data).open_log()) as log,
        ):
            if not self._await(supervisor, stop, step, lambda: supervisor.ready):
                return
            self._announce(url)

            def line() -> str:
                waiting = ", ".join(supervisor.waiting)
                try:
                    standing = str(status_of(data, log, journal))
                except PenstockError as error:
                    standing = f"log or journal cannot be read: {error}"
                return f"waiting for {waiting}  {standing}" if waiting else standing

            with shown(self._display) as show:
                while not stop.wanted.wait(LOOK_S):
                    step()
                    show(line)

    def _await(
        self,
        supervisor: Supervisor,
        stop: Stop,
        step: Callable[[], None],
        is_reached: Callable[[], bool],
    ) -> bool:
        """Wait for a state of the processes, and show their work; return False at a request to stop.

        A process that has ended is started again, unless the disk is full: that does not pass by itself at a start.

        Args:
            step: Called repeatedly.
            is_reached: Says whether the processes have the state.
        """
        with shown(self._display) as show:
            while not is_reached():
                step()
                if supervisor.failing:
                    check_space(self.settings.data)
                show(lambda: self._starting(supervisor))
                if stop.wanted.wait(LOOK_S):
                    return False
        return True

    def _starting(self, supervisor: Supervisor) -> str:
        """Return a line that says which processes start, and which steps they have reached."""
        steps = [(role, startup.step_of(self.settings.data, role)) for role in supervisor.waiting]
        roles = ", ".join(f"{role} ({step})" if step else role for role, step in steps)
        return f"starting: {roles}"

    def _announce(self, url: str) -> None:
        guarded = KeyStore(self.settings.data).exists or self.settings.gateway.jwks != NOT_SET
        key = " -H 'Authorization: Bearer KEY'" if guarded else ""
        self._print(
            f"running; Ctrl-C stops\n"
            f"  requests  {url}\n"
            f"  console   {url}/console/\n"
            f"  docs      {url}/docs\n"
            f"  try       {first_request(self.app, url)}{key}"
        )
        if (generators := self.app.topology.generators) and not self.options.generates:
            command = f"penstock generate {self.options.app}"
            self._print(f"  generators do not run: {', '.join(generators)}; {command} runs them")
        for pause in PauseFile(self.settings.data).pauses().in_force.values():
            self.tell("gateway", f"refuses requests; paused: {describe(pause)}")

    def _print(self, text: str) -> None:
        if self._for_programs:
            _log.info(text)
            return
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def text_of(change: SchemaChange) -> str:
    """Return the description of a class's change, for a person."""
    lines = "".join(f"\n  {line}" for line in change.changes)
    number = change.version.number
    return f"{change.name} changes; stored entities are read as schema version {number}:{lines}"


def url_of(settings: Config) -> str:
    """Return the URL of the gateways on this machine."""
    gateway = settings.gateway
    scheme = "http" if gateway.tls_certificate == NOT_SET else "https"
    host = _EVERYWHERE.get(gateway.host, gateway.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{gateway.port}"


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Hold a TCP port until the block ends; gives its number, which port 0 leaves to the system.

    Raises:
        ConfigError: Another process has the port, or the address is not of this machine.
    """
    # Gateways share their port (`SO_REUSEPORT`), so two applications would share a port unnoticed, and each would get
    # some requests of the other. So the port is asked for without that option first, and then held with a socket that
    # takes no connections.
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


def first_request(app: App, url: str) -> str:
    """Return a command that sends an application a first request.

    The request uses a route of the application that creates an entity or needs none; otherwise it
    creates an entity of the first class, calls the first function, or appends to the first stream that takes
    appends. An application without any of them is asked for its streams, or whether it is ready.
    """
    # Only now: until the application runs, the driver needs the processor.
    from penstock.gateway.openapi.document import openapi_document
    from penstock.gateway.openapi.examples import curl_of

    try:
        path, verb = _operation(app)
        return curl_of(openapi_document(app, server_url=url), path, verb)
    except Exception:  # noqa: BLE001 -- an application runs even if its interface cannot be described
        _log.exception("the interface of %s could not be described", app.name)
        return f"curl -sS {url}/readyz"


def _operation(app: App) -> tuple[str, str]:
    routes = sorted(app.routes, key=_rank)
    if routes and _rank(routes[0]) < 2:
        return "/" + "/".join(routes[0].segments), routes[0].verb.lower()
    if app.entities:
        return f"/call/{next(iter(app.entities))}/{{key}}/create", "post"
    if app.functions:
        return f"/call/{next(iter(app.functions))}", "post"
    for stream in app.topology.streams.values():
        if stream.is_open:
            return f"/streams/{stream.name}", "post"
    return ("/streams" if app.topology.streams else "/readyz"), "get"


def _rank(route: Route) -> int:
    if route.method in CREATIONS:
        return 0
    return 1 if not route.entity else 2
