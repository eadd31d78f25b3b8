"""`penstock generate`: run the generators of an application against a gateway, until all have ended.

The gateway says which atoms are there: the position of a generator follows from the ids of its appends. So the
command can be stopped and started at any time, and it keeps nothing on disk.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, OperationalError, RequestError

if TYPE_CHECKING:
    from penstock.client.synchronous import Client
    from penstock.process.config import Config
    from penstock.runtime.generators.run import GeneratorState
    from penstock.runtime.generators.runner import GeneratorRunner

HELP: Final = """Run the generators of an application, which append events to its streams.

The application runs elsewhere: penstock run must be running with the same data directory, or --url names a
gateway. The command ends when each generator is finished or has failed, or at SIGINT or SIGTERM. At the next start,
each generator goes on behind its atoms that are on the stream; no atom is appended twice. For that, the application
must hold the ids of the generator's appends: set no limit history.keep_…, or let a generator end before it is
reached.

Exit code 1: a generator has failed; its reason names the atom, and for a file the line and the field.

\b
Examples:
  penstock generate sources.py
  penstock generate sources.py --only measures
  penstock generate sources.py --url http://127.0.0.1:8000 --json
"""

_WAIT_US: Final = 1_000_000
_LOOK_S: Final = 0.2
_TELL_S: Final = 10.0

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

    def has_appended(self, request_id: str) -> bool:
        """Say whether the gateway knows an append with this id."""
        try:
            self._client.pending(request_id).done()
        except RequestError:
            return False
        return True


def command(
    options: AppOptions,
    remote: RemoteOptions,
    only: OnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run generators; see `HELP`.

    Raises:
        ConfigError: No gateway is running, or the application has no such generator.
        Exit: A generator has failed.
    """
    app, settings = options.load_unchecked()
    names = only or list(app.topology.generators)
    unknown = [name for name in names if name not in app.topology.generators]
    if unknown or not names:
        known = ", ".join(app.topology.generators) or "none"
        what = f"has no generator {', '.join(unknown)}" if unknown else "has no generator"
        raise ConfigError(f"application {app.name} {what}; its generators: {known}")
    from penstock.client.synchronous import Client
    from penstock.process.stop import Stop
    from penstock.runtime.generators.runner import GeneratorRunner

    url = remote.url or _gateway_of(settings)
    with Client(url, app, key=remote.api_key) as client, Stop() as stop:
        runner = GeneratorRunner(app, GatewayPort(client), names)
        _run(runner, stop.wanted.wait, as_json=as_json)
        states = runner.states(_now_us())
    plain = [_plain(state) for state in states]
    print_result(plain, lambda console: _print(console, states), as_json=as_json)
    if any(state.reason for state in states):
        raise typer.Exit(1)


def _gateway_of(settings: "Config") -> str:
    """Return the URL of a gateway that runs on the data directory.

    Raises:
        ConfigError: No gateway is running.
    """
    from penstock.process import presence

    for gateway in presence.find(settings.data, "gateway"):
        if "url" in gateway.details:
            return str(gateway.details["url"])
    raise ConfigError(
        f"no gateway is running in {settings.data}; start it with penstock run {settings.app}, or name one with --url"
    )


def _run(runner: "GeneratorRunner", wait: Any, *, as_json: bool) -> None:
    """Append atoms until no generator is running, or until the process is asked to stop.

    Args:
        runner: The generators.
        wait: Waits so many seconds; returns whether the process is asked to stop.
        as_json: Say nothing about the progress.
    """
    console = Console(stderr=True)
    told = time.monotonic()
    while not wait(0):
        now_us = _now_us()
        moved = runner.step(None, now_us) is not None
        if time.monotonic() - told >= _TELL_S and not as_json:
            told = time.monotonic()
            _print(console, runner.states(now_us))
        if moved:
            continue
        due_us = runner.next_due_us(now_us)
        if due_us is None:
            return
        if wait(min(_LOOK_S, max(0, due_us - now_us) / 1_000_000)):
            return


def _print(console: Console, states: "Sequence[GeneratorState]") -> None:
    table = folding_table("Generator", "Stream", "Status", "Atoms", "Place")
    for state in states:
        share = "" if state.share is None else f" ({state.share:.0%})"
        atoms = f"{state.atoms:,}"
        table.add_row(state.name, state.stream, state.status, atoms, state.place + share)
    console.print(table)
    for state in states:
        if state.reason:
            console.print(state.reason, style="red", markup=False, highlight=False, soft_wrap=True)


def _plain(state: "GeneratorState") -> dict[str, object]:
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


def _now_us() -> int:
    return time.time_ns() // 1_000
