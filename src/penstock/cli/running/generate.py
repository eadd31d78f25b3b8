"""`penstock generate`: run the generators of an application against a gateway, until all have ended.

`penstock run --generate` starts this command, too.

The gateway says which atoms are there: the position of a generator follows from the ids of its appends. So the
command can be stopped and started at any time. The files of its progress are for displays only.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.options import AppOptions, JsonOption, SupervisedOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, Gone, OperationalError, PenstockError, RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.cli.running.generator_versions import GeneratorVersions
    from penstock.client.synchronous import Client
    from penstock.model.application import App
    from penstock.process.config import Config
    from penstock.runtime.generators.run import GeneratorState
    from penstock.runtime.generators.runner import Appended, GeneratorRunner

HELP: Final = """Run the generators of an application, which append events to its streams.

The application runs elsewhere: penstock run must be running with the same data directory, or --url names a
gateway; if this gateway asks for no keys, name the data directory, too. penstock run --generate does both. penstock status shows how far the generators are. The command ends when each generator is finished or has failed, or at SIGINT or SIGTERM. At the next start,
each generator goes on behind its atoms that are on the stream; no atom is appended twice.

With a data directory, generators follow the deployments of the application: the next atom is from the new code. A generator that a deployment does not have ends, and says so. With --url alone, generators keep their code until the next start.

Exit code 1: a generator has failed; its reason names the atom, and for a file the line and the field.

\b
Examples:
  penstock generate sources.py
  penstock generate sources.py --only measures
  penstock generate sources.py --url http://127.0.0.1:8000 --json
"""

_WAIT_US: Final = 1_000_000
_LOOK_S: Final = 0.2
_SAVE_S: Final = 1.0
_TELL_S: Final = 10.0

Wait = Callable[[float], bool]
"""Waits so many seconds; returns whether the process is asked to stop."""

OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Run this generator; may be repeated."),
]


class GatewayPort:
    """Appends atoms through a gateway; an atom is appended when it is durable."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def append_atom(self, stream: str, events: Sequence[Any], request_id: str) -> int:
        """Append an atom; ask for a pause if the gateway cannot take it now."""
        append = self._client.prepare.append(stream, events, request_id=request_id)
        try:
            self._client.send(append)
        except OperationalError:
            return _WAIT_US
        return 0

    def appended(self, request_id: str) -> "Appended":
        """Say whether an append with this id is durable; the gateway forgets its reply after a time."""
        from penstock.runtime.generators.runner import Appended

        pending = self._client.pending(request_id)
        try:
            is_done = pending.done()
        except RequestError:
            return Appended.NEVER
        try:
            if is_done:
                pending.result()
        except Gone:
            return Appended.FORGOTTEN
        except PenstockError:  # how the append has ended
            return Appended.KNOWN
        return Appended.KNOWN


def command(
    options: AppOptions,
    remote: RemoteOptions,
    only: OnlyOption = None,
    supervised: SupervisedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run generators; see `HELP`.

    A process of `penstock run` waits for a gateway, and ends with the exit code 0 also if a generator has failed.
    """
    app, settings = options.load_unchecked()
    names = only or list(app.topology.generators)
    unknown = [name for name in names if name not in app.topology.generators]
    if unknown or not names:
        known = ", ".join(app.topology.generators) or "none"
        what = f"has no generator {', '.join(unknown)}" if unknown else "has no generator"
        raise ConfigError(f"application {app.name} {what}; its generators: {known}")
    from penstock.process import presence
    from penstock.process.generator_progress import ROLE
    from penstock.process.stop import Stop

    with Stop(supervised=supervised) as stop, ExitStack() as stack:
        if remote.url is None:
            stack.enter_context(presence.present(settings.data, ROLE, settings.app))
        url = remote.url or _gateway_of(settings, stop.wanted.wait if supervised else None)
        if url is None:
            return
        data = None if remote.url else settings.data
        progress = _ProgressDisplay(data, is_quiet=as_json or supervised)
        key = remote.api_key
        if key is None and (remote.url is None or options.data is not None):
            key = _key_of(settings)  # only the gateway of this directory may see it
        follows = remote.url is None or options.data is not None
        versions = _versions_of(settings) if follows else None
        states = _Generating(names, (url, key), stop.wanted.wait, progress).perform(app, versions)
    _tell_end(states, supervised=supervised, as_json=as_json)


def _versions_of(settings: "Config") -> "GeneratorVersions":
    from penstock.cli.running.generator_versions import GeneratorVersions

    return GeneratorVersions(settings.data, settings.app, _tell)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class _Generating:
    """Runs generators with one version of the application after the other.

    Args:
        gateway: The URL of a gateway, and the key for it.
        wait: Waits so many seconds; returns whether the process is asked to stop.
    """

    def __init__(
        self,
        names: Sequence[str],
        gateway: tuple[str, str | None],
        wait: Wait,
        progress: "_ProgressDisplay",
    ) -> None:
        self._names = list(names)
        self._gateway = gateway
        self._wait = wait
        self._progress = progress
        self._ended: list[GeneratorState] = []

    def perform(self, app: "App", versions: "GeneratorVersions | None") -> "list[GeneratorState]":
        """Run until no generator is running, or until the process is asked to stop; return the states at the end.

        Args:
            versions: Its later versions; None if the generators do not follow them.
        """
        follower: App | None = app
        is_first = True
        states: list[GeneratorState] = []
        while follower is not None:
            follower, states = self._run_version(follower, versions, repeats=is_first)
            is_first = False
            if follower is not None and versions is not None:
                self._leave_missing(follower, states, versions.number)
        return [*self._ended, *states]

    def _run_version(
        self, app: "App", versions: "GeneratorVersions | None", *, repeats: bool
    ) -> "tuple[App | None, list[GeneratorState]]":
        """Run with one version; return the next one, if there is one, and the states."""
        from penstock.client.synchronous import Client
        from penstock.runtime.generators.runner import GeneratorRunner

        url, key = self._gateway
        with Client(url, app, key=key) as client:
            runner = GeneratorRunner(app, GatewayPort(client), self._names, repeats=repeats)
            try:
                following = _run(runner, self._wait, self._progress, versions)
            finally:
                self._progress.save([*self._ended, *runner.states(_now_us())])
            return following, runner.states(_now_us())

    def _leave_missing(self, app: "App", states: "Sequence[GeneratorState]", number: int) -> None:
        """End the generators that a version does not have."""
        from penstock.runtime.generators.run import GeneratorStatus

        for state in states:
            if state.name in app.topology.generators:
                continue
            self._names.remove(state.name)
            if state.status is GeneratorStatus.RUNNING:
                reason = f"generator {state.name} ends: deployment {number} does not have it"
                state = replace(state, status=GeneratorStatus.FAILED, reason=reason)
            self._ended.append(state)
        self._progress.save(self._ended)


def _tell_end(states: "list[GeneratorState]", *, supervised: bool, as_json: bool) -> None:
    """Print the states at the end."""
    if supervised:
        for state in states:
            sys.stderr.write(f"{state.reason or f'{state.name} is {state.status}'}\n")
        return
    plain = [_plain(state) for state in states]
    print_result(plain, lambda console: _print(console, states), as_json=as_json)
    if any(state.reason for state in states):
        raise typer.Exit(1)


def _key_of(settings: "Config") -> str | None:
    """Return the key of the generators for a gateway without keys; None if a key or token must be given."""
    from penstock.gateway.auth.exposure import NOT_SET
    from penstock.gateway.auth.keys import KeyStore
    from penstock.process.generator_key import key_in

    if KeyStore(settings.data).exists or settings.gateway.jwks != NOT_SET:
        return None
    return key_in(settings.data)


def _gateway_of(settings: "Config", wait: Wait | None) -> str | None:
    """Return the URL of a gateway that runs on the data directory.

    Args:
        wait: Waits so many seconds for a gateway, and returns whether the process is asked to stop; None does not wait.

    Returns:
        The URL; None if the process is asked to stop before a gateway runs.
    """
    from penstock.process import presence

    while True:
        for gateway in presence.find(settings.data, "gateway"):
            if "url" in gateway.details:
                return str(gateway.details["url"])
        if wait is None:
            raise ConfigError(
                f"no gateway is running in {settings.data}; start it with penstock run {settings.app}, "
                "or name one with --url"
            )
        if wait(_LOOK_S):
            return None


class _ProgressDisplay:
    """Shows the states of generators while they run: as files of the data directory, and on the terminal."""

    def __init__(self, data: Path | None, *, is_quiet: bool) -> None:
        self._data = data
        self._is_quiet = is_quiet
        self._told = time.monotonic()
        self._saved = float("-inf")

    def look(self, runner: "GeneratorRunner", now_us: int) -> None:
        """Show the states if it is time."""
        from rich.console import Console

        now = time.monotonic()
        if now - self._saved >= _SAVE_S:
            self._saved = now
            self.save(runner.states(now_us))
        if now - self._told >= _TELL_S and not self._is_quiet:
            self._told = now
            _print(Console(stderr=True), runner.states(now_us))

    def save(self, states: "Sequence[GeneratorState]") -> None:
        """Write the states into the data directory."""
        if self._data is None:
            return
        from penstock.process.generator_progress import GeneratorProgress, write_progress

        pid = os.getpid()
        write_progress(
            self._data, [GeneratorProgress(**_plain(state), pid=pid) for state in states]
        )


def _now_us() -> int:
    """Return the time of a clock without jumps: one that is set back would stop generators for as long as it went."""
    return time.monotonic_ns() // 1000


def _run(
    runner: "GeneratorRunner",
    wait: Wait,
    progress: _ProgressDisplay,
    versions: "GeneratorVersions | None",
) -> "App | None":
    """Append atoms until no generator is running, or until the process is asked to stop.

    Args:
        wait: Waits so many seconds; returns whether the process is asked to stop.
        versions: The later versions of the application, if the generators follow them.

    Returns:
        The version with which the generators go on; None at the end.
    """
    while not wait(0):
        if versions is not None and (app := versions.look()) is not None:
            return app
        now_us = _now_us()
        moved = runner.step(None, now_us) is not None
        progress.look(runner, now_us)
        if moved:
            continue
        due_us = runner.next_due_us(now_us)
        if due_us is None:
            has_failed = any(state.reason for state in runner.states(now_us))
            return versions.awaited(wait) if versions is not None and has_failed else None
        if wait(min(_LOOK_S, max(0, due_us - now_us) / 1_000_000)):
            break
    return None


def _print(console: "Console", states: "Sequence[GeneratorState]") -> None:
    table = folding_table("Generator", "Stream", "Status", "Atoms", "Place")
    for state in states:
        share = "" if state.share is None else f" ({state.share:.0%})"
        atoms = f"{state.atoms:,}"
        table.add_row(state.name, state.stream, state.status, atoms, state.place + share)
    console.print(table)
    for state in states:
        if state.reason:
            console.print(state.reason, style="red", markup=False, highlight=False, soft_wrap=True)


def _plain(state: "GeneratorState") -> dict[str, Any]:
    return {
        "generator": state.name,
        "stream": state.stream,
        "status": state.status.value,
        "atoms": state.atoms,
        "events": state.events,
        "place": state.place,
        "share": state.share,
        "reason": state.reason,
    }
