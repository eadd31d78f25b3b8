"""`penstock keys`: make, list and revoke the API keys of an application.

The secret of a new key goes to standard output once, alone, so that a secret store can read it from a
pipe. It is not stored.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import AppOptions, JsonOption, expanded
from penstock.cli.output import folding_table, print_json, print_result
from penstock.errors import ConfigError, RequestError
from penstock.gateway.auth.keys import ApiKey, KeyStore, utc_now
from penstock.gateway.auth.principal import Scope, check_scope, parse_scope

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.model.application import App

HELP: Final = """Make, list and revoke the API keys of an application.

After the first key is made, gateways accept only clients with a key or a token. They apply every
change within a second.

\b
Examples:
  penstock keys add reader --scope read --scope sql examples/shop
  penstock keys list examples/shop
  penstock keys revoke reader examples/shop
"""

ADD_HELP: Final = """Make a key, and print it once: only a hash of it is stored.

\b
Scopes:
  *                                         everything
  admin                                     metrics, console, orders of an operator
  watch                                     metrics and console, which then change nothing
  sql                                       SQL over the whole state
  call, call:Item, call:Item.add, call:f    all calls, a class, a method, a function
  call:Item.delete                          deletions, which call:Item does not cover
  read, read:Item                           attributes of all entities, of a class
  append, append:lines                      appends to all streams, to a stream
  follow, follow:lines                      atoms of all streams, of a stream
The scope applies to the method that a request calls, not to the calls inside of that method.

\b
Examples:
  penstock keys add web --scope call:Order.checkout --scope read:Item examples/shop
  penstock keys add reporting --scope sql --expires 90d examples/shop
  penstock keys add root --scope '*' --data data examples/shop > root.key
"""

LIST_HELP: Final = """List the keys with their scopes and expiry times; secrets are never shown.

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

command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client or use of the key.")],
    options: AppOptions,
    scope: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help="A right; may be repeated.")
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="From now: 90m, 12h, 30d, 4w; default: never."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key; see `ADD_HELP`.

    Raises:
        RequestError: A scope is malformed, or the application has nothing of its name.
    """
    from rich.console import Console

    application, settings = options.load_unchecked()
    scopes = _scopes(scope, application)
    now = utc_now()
    until = now + _duration(expires) if expires is not None else None
    store = KeyStore(settings.data)
    is_first = not store.exists
    made, secret = store.add(name, scopes, until, now)
    messages = Console(stderr=True, highlight=False, soft_wrap=True)
    if as_json:
        print_json({**_plain(made, now), "secret": secret})
    else:
        typer.echo(secret)
    messages.print(
        f"Key {made.id} ({made.name}) {_validity(made, now)}, for: {' '.join(made.scopes)}\n"
        "Keep it: it is shown only now. Send it as  Authorization: Bearer psk_…",
        markup=False,
    )
    if is_first:
        messages.print(
            "This is the first key: from now on gateways accept only clients with a key or a token.",
            style="yellow",
        )


def list_keys(options: AppOptions, as_json: JsonOption = False) -> None:
    """List the keys; see `LIST_HELP`."""
    keys, now = KeyStore(options.folder()).read(), utc_now()
    plain = [_plain(key, now) for key in keys]
    print_result(plain, lambda console: _show(keys, now, console), as_json=as_json)


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="Which key.")],
    options: AppOptions,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key; see `REVOKE_HELP`."""
    revoked = KeyStore(options.folder()).revoke(name)
    line = f"Revoked key {revoked.id} ({revoked.name})."
    plain = _plain(revoked, utc_now())
    print_result(plain, lambda console: console.print(line), as_json=as_json)


command.command("add", help=ADD_HELP)(expanded(add))
command.command("list", help=LIST_HELP)(expanded(list_keys))
command.command("revoke", help=REVOKE_HELP)(expanded(revoke))


def _show(keys: Sequence[ApiKey], now: datetime, console: "Console") -> None:
    table = folding_table("id", "name", "ends in", "created", "valid", "scopes", box=None)
    for key in keys:
        created, valid = f"{key.created:%Y-%m-%d}", _validity(key, now)
        table.add_row(key.id, key.name, key.last, created, valid, "\n".join(key.scopes))
    console.print(table if keys else "There are no keys.")


def _scopes(words: list[str], app: "App") -> list[Scope]:
    """Check the scopes of a new key.

    Raises:
        RequestError: Scopes are malformed or unknown; the message names all of them.
    """
    scopes, complaints = [], []
    for word in words:
        try:
            scope = parse_scope(word)
            check_scope(scope, app)
            scopes.append(scope)
        except RequestError as error:
            complaints.append(str(error))
    if complaints:
        raise RequestError("\n".join(complaints))
    return scopes


def _duration(text: str) -> timedelta:
    """Return the time for which a key is valid."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--expires {text}: it must be a number and m, h, d or w, for example 30d"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _plain(key: ApiKey, now: datetime) -> dict[str, object]:
    """Return the public fields of a key: all but its digest."""
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
