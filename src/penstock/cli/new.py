"""`penstock new`: a first application, with a test that passes."""

import keyword
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import ConfigError

HELP: Final = """Write a first application with a test: NAME/app.py, NAME/test_app.py, NAME/README.md.

\b
Examples:
  penstock new kiosk
  penstock new kiosk && cd kiosk && pytest
"""

APP: Final = '''"""What is on the shelves, and how it is sold."""

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
penstock dev app.py      # run it; a change of app.py starts it again
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

FILES: Final = {"app.py": APP, "test_app.py": TEST, "README.md": README}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")],
) -> None:
    """Write a first application; see `HELP`."""
    write(Path(name))
    typer.echo(f"{name}/ has {', '.join(FILES)}. Next: cd {name} && penstock dev app.py")


def write(folder: Path) -> None:
    """Write the files of an application, which has the name of its folder.

    Raises:
        ConfigError: The name is invalid, or the folder exists already.
    """
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
    for file, text in FILES.items():
        (folder / file).write_text(text.format(name=name))
