"""`penstock client`: a client of an application in another language, written from its types."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

HELP: Final = """Write a client of an application in TypeScript: types, calls, errors, request ids, streams, subscriptions; one file that needs nothing else.

The types come from the source of APP, or, with --url, from the gateway of a running application. The file is
DIR/NAME.ts, where NAME is the name of the application; write it again after a change of the application. It runs
in Node.js from 20.3 on, in Deno, Bun and browsers. Python has a client without this command: penstock.Client.

Whole numbers are of the type number. An answer with a whole number that it cannot hold exactly is an error. With
--bigint they are of the type bigint, which holds all of them.

\b
Examples:
  penstock client examples/shop --typescript web/src
  penstock client --url http://127.0.0.1:8000 --typescript web/src
  penstock client examples/bank --typescript web/src --bigint
"""


def command(
    options: AppOptions,
    remote: RemoteOptions,
    folder: Annotated[
        Path, typer.Option("--typescript", metavar="DIR", help="Write TypeScript into this folder.")
    ],
    bigint: Annotated[
        bool, typer.Option("--bigint", help="Whole numbers are of the type bigint.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the client, and print where it is."""
    from penstock.gateway.openapi.typescript import typescript_client

    document = _document(options, remote)
    name = re.sub(r"[^\w.-]+", "_", document["info"]["title"])
    place = folder / f"{name}.ts"
    text = typescript_client(document, bigint=bigint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--typescript {folder}: the client cannot be written: {error}"
        ) from error
    written = {"path": str(place), "bytes": len(text.encode())}
    print_result(
        written,
        lambda console: console.print(
            f'{place} has the class Client: import {{ Client }} from "./{name}.js"'
        ),
        as_json=as_json,
    )


def _document(options: AppOptions, remote: RemoteOptions) -> dict[str, Any]:
    if remote.url is not None:
        return remote.get("/openapi.json", dict[str, Any])
    from penstock.gateway.openapi.document import openapi_document

    application, _ = options.load_unchecked()
    return openapi_document(application)
