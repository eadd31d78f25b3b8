"""`penstock new`: a first application with a test that passes, or a copy of an example.

The examples are in the wheel; in a checkout they are the folder `examples`.
"""

import keyword
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.commands import CHECKOUT
from penstock.cli.missing_package import INSTALL, can_run
from penstock.cli.options import JsonOption
from penstock.cli.output import print_result
from penstock.errors import ConfigError

HELP: Final = """Write a first application with a test, or an example: a folder NAME.

A first application has app.py, test_app.py, README.md, and penstock.toml, which names the application,
so that commands in the folder need no APP.

With --example, the folder is a copy of an example of Penstock: bank, boxoffice, cart, clinic, library,
newsroom, pantry, shop, strangle, talk, travel or tpcc. Its name is that of the example, unless NAME is given.

\b
Examples:
  penstock new kiosk
  penstock new kiosk && cd kiosk && pytest
  penstock new --example shop
  penstock new my_bank --example bank
"""

APP: Final = '''"""The items on the shelves, and their sale."""

from penstock import App, Entity, key, route


@route("/items", "POST create/{{item_id}}", "GET {{item_id}}")
class Item(Entity):
    item_id: str = key()
    stock: int = 0

    @route("POST /items/{{item_id}}/take/{{amount}}")
    def take(self, amount: int) -> int:
        if self.stock < amount:
            raise ValueError(f"only {{self.stock}} left")  # undoes all that the request did
        self.stock -= amount
        return self.stock


app = App("{name}", Item)
'''

TEST: Final = '''"""The application without Spark: the same rules, in milliseconds."""

import pytest
from app import app

from penstock import Aborted
from penstock.testing import Kit


def test_item_is_taken_from_stock() -> None:
    kit = Kit(app)
    kit.call.Item.create("tea", stock=5)
    assert kit.call.Item("tea").take(2) == 3
    assert kit.entity("Item", "tea") == {{"item_id": "tea", "stock": 3}}


def test_more_than_there_is_takes_nothing() -> None:
    kit = Kit(app)
    kit.call.Item.create("tea", stock=5)
    with pytest.raises(Aborted, match="only 5 left"):
        kit.call.Item("tea").take(6)
    assert kit.entity("Item", "tea") == {{"item_id": "tea", "stock": 5}}
'''

README: Final = """# {name}

```console
pytest                   # test it, without Spark
penstock dev             # run it; a change of app.py starts it again
```

From another terminal:

```console
curl -X POST 'http://127.0.0.1:8000/items/create/tea?stock=5'
curl -X POST http://127.0.0.1:8000/items/tea/take/2
curl http://127.0.0.1:8000/items/tea
```

The console is at http://127.0.0.1:8000/console/, the reference of all paths at
http://127.0.0.1:8000/docs.
"""

SETTINGS: Final = """app = "app.py"
"""

FILES: Final = {
    "app.py": APP,
    "test_app.py": TEST,
    "README.md": README,
    "penstock.toml": SETTINGS,
}
PLACES: Final = (Path(__file__).parent / "examples", CHECKOUT / "examples")
"""The folders that may hold the examples: in a wheel, and in a checkout."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Lower-case letters, digits and _.", show_default=False
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="EXAMPLE",
            help="bank, boxoffice, cart, clinic, library, newsroom, pantry, shop, strangle, talk, travel or tpcc.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a first application or an example; see `HELP`."""
    chosen = name or example
    if chosen is None:
        raise ConfigError("name the new application: penstock new NAME, or --example shop")
    folder = Path(chosen)
    if example is None:
        write(folder)
        tests, runs = f"cd {chosen} && pytest", f"cd {chosen} && penstock dev"
    else:
        copy_example(example, folder)
        tests, runs = f"pytest {chosen}", f"penstock dev {chosen}"
    files = sorted(path.name for path in folder.iterdir())
    plain = {"folder": chosen, "files": files}
    to_run = runs if can_run() else f"{INSTALL} && {runs}"
    line = f"{chosen}/ has {', '.join(files)}.\nTest it:  {tests}\nRun it:   {to_run}"
    print_result(plain, lambda console: console.print(line), as_json=as_json)


def copy_example(example: str, folder: Path) -> None:
    """Copy the package of an example."""
    place = next((place for place in PLACES if place.is_dir()), PLACES[0])
    known = sorted(path.parent.name for path in place.glob("*/__init__.py"))
    if example not in known:
        raise ConfigError(f"there is no example {example!r}; the examples are {', '.join(known)}")
    _make(folder)
    for path in sorted((place / example).glob("*.*")):
        (folder / path.name).write_text(path.read_text())


def write(folder: Path) -> None:
    """Write the files of an application, which has the name of its folder."""
    _make(folder)
    for file, text in FILES.items():
        (folder / file).write_text(text.format(name=folder.name))


def _make(folder: Path) -> None:
    """Make the folder of an application."""
    name = folder.name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} cannot name an application: lower-case letters, digits and _, such as kiosk"
        )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{folder} exists already; nothing was written") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be created: {error.strerror}") from error
