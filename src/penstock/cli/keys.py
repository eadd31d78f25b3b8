"""`penstock keys`: make, list and revoke the API keys of an application.

A key's secret goes to standard output once, alone, so that it can be piped into a secret store; it
is stored nowhere else. Gateways that run notice every change within a second.
"""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.options import AppArgument, ConfigOption, DataOption, config_of, default_data
from penstock.errors import ConfigError, RequestError
from penstock.gateway.auth.keys import ApiKey, KeyStore, utc_now
from penstock.gateway.auth.principal import Scope, check_scope, parse_scope
from penstock.model.application import App
from penstock.process.loading import load_app

HELP: Final = """Make, list and revoke the API keys of an application.

As soon as there is one, gateways let nobody in without a key or a token. They notice every change
within a second.

\b
Examples:
  penstock keys add reader --scope read --scope sql examples/shop
  penstock keys list examples/shop
  penstock keys revoke reader examples/shop
"""

ADD_HELP: Final = """Make a key, and print it this once: only a hash of it is stored.

\b
Scopes:
  *                                         everything
  admin                                     metrics, console, operations
  sql                                       SQL over the whole state
  call, call:Item, call:Item.add, call:f    everything, a class, a method, a function
  read, read:Item                           attributes of all entities, of a class
The scope is asked for what a request calls, not for what that calls in turn.

\b
Examples:
  penstock keys add web --scope call:Order.checkout --scope read:Item examples/shop
  penstock keys add reporting --scope sql --expires 90d examples/shop
  penstock keys add root --scope '*' --data data examples/shop > root.key
"""

LIST_HELP: Final = """List the keys: who may do what, and until when. Never shows a secret.

\b
Examples:
  penstock keys list examples/shop
  penstock keys list --data data --json
"""

REVOKE_HELP: Final = """Revoke a key by its name or id; gateways refuse it within a second.

\b
Examples:
  penstock keys revoke reader examples/shop
  penstock keys revoke 1f0c9a2e --data data
"""

_DURATION: Final = re.compile(r"([1-9][0-9]{0,3})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

keys: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode="rich"
)

OptionalApp = Annotated[
    str | None,
    typer.Argument(metavar="[APP]", help="The application; not needed beside --data."),
]


@keys.command("add", help=ADD_HELP)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom or what the key is for.")],
    app: AppArgument,
    scope: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help="A right; may be repeated.")
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="From now: 90m, 12h, 30d, 4w; default: never."
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a key; see `ADD_HELP`.

    Raises:
        ConfigError: The name is taken, or a value cannot be used.
        RequestError: A scope is none, or names nothing of the application.
    """
    application = load_app(app)
    scopes = _scopes(scope, application)
    settings = config_of(default_data(application.name), data=data, file=config)
    now = utc_now()
    until = now + _duration(expires) if expires is not None else None
    store = KeyStore(settings.data)
    first = not store.exists
    made, secret = store.add(name, scopes, until, now)
    messages = Console(stderr=True, highlight=False, soft_wrap=True)
    typer.echo(secret)
    messages.print(
        f"Key {made.id} ({made.name}) {_validity(made, now)}, for: {' '.join(made.scopes)}\n"
        "Keep it: it is shown only now. Send it as  Authorization: Bearer psk_…",
        markup=False,
    )
    if first:
        messages.print(
            "It is the first one: from now on gateways let nobody in without a key or a token.",
            style="yellow",
        )


@keys.command("list", help=LIST_HELP)
def list_keys(
    app: OptionalApp = None,
    data: DataOption = None,
    as_json: Annotated[  # noqa: FBT002 -- a flag
        bool, typer.Option("--json", help="Print a JSON array.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """List the keys; see `LIST_HELP`."""
    found, now = _store(app, data, config).read(), utc_now()
    if as_json:
        typer.echo(msgspec.json.encode([_shown(one, now) for one in found]))
        return
    table = Table("id", "name", "ends in", "created", "valid", "scopes", box=None)
    for column in table.columns:
        column.overflow = "fold"  # nothing is cut off
    for one in found:
        created, valid = f"{one.created:%Y-%m-%d}", _validity(one, now)
        table.add_row(one.id, one.name, one.last, created, valid, "\n".join(one.scopes))
    Console(highlight=False, markup=False).print(table if found else "There are no keys.")


@keys.command("revoke", help=REVOKE_HELP)
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="Which key.")],
    app: OptionalApp = None,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a key; see `REVOKE_HELP`.

    Raises:
        ConfigError: There is no such key; names those that there are.
    """
    gone = _store(app, data, config).revoke(name)
    typer.echo(f"Revoked key {gone.id} ({gone.name}).")


def _scopes(words: list[str], app: App) -> list[Scope]:
    """Check the scopes of a new key.

    Raises:
        RequestError: Some are none, or name nothing of the application; names all of them.
    """
    found, complaints = [], []
    for word in words:
        try:
            scope = parse_scope(word)
            check_scope(scope, app)
            found.append(scope)
        except RequestError as error:
            complaints.append(str(error))
    if complaints:
        raise RequestError("\n".join(complaints))
    return found


def _store(app: str | None, data: Path | None, config: Path | None) -> KeyStore:
    """Return the keys of an application, or of a data directory that is named otherwise."""
    nowhere = Path()
    default = default_data(load_app(app).name) if app is not None else nowhere
    settings = config_of(default, data=data, file=config)
    if settings.data == nowhere:
        raise ConfigError("whose keys? Name the application, or its data directory with --data")
    return KeyStore(settings.data)


def _duration(text: str) -> timedelta:
    """Return how long a key shall be valid.

    Raises:
        ConfigError: The text does not say.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigError(f"--expires {text}: wants a number and m, h, d or w, for example 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _shown(key: ApiKey, now: datetime) -> dict[str, object]:
    """Return what may be shown of a key: all but its digest."""
    return {
        "id": key.id,
        "name": key.name,
        "last": key.last,
        "scopes": key.scopes,
        "created": key.created,
        "expires": key.expires,
        "expired": key.is_expired(now),
    }


def _validity(key: ApiKey, now: datetime) -> str:
    if key.expires is None:
        return "for ever"
    return f"{'expired' if key.is_expired(now) else 'until'} {key.expires:%Y-%m-%d %H:%M}Z"
