"""`penstock keys`: its output, the secrets that it hides, and its refusals."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from penstock.deployment.loading import load_app
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.principal import Principal, Scope
from penstock.process.config import Config
from tests.checkout import SHOP
from tests.docs.conftest import Run

SECRET = re.compile(r"psk_[0-9a-f]{8}_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
def keys(penstock: Run) -> Run:
    """Run a `keys` command in an empty directory; return its exit code and its output."""
    return partial(penstock, "keys")


@pytest.mark.parametrize("command", ["", "add", "list", "revoke"])
def test_help_shows_examples(keys: Run, command: str) -> None:
    """The help of each command has an example to copy."""
    code, out, _ = keys(*command.split(), "--help")
    assert code == 0
    assert re.search(rf"^ +penstock keys {command}", out, re.MULTILINE)


def test_add_prints_the_key_alone_and_once(keys: Run) -> None:
    """Standard output is the key and nothing else; nothing shows it again."""
    code, out, err = keys("add", "web", "--scope", "sql", "--scope", "call:Order.checkout", SHOP)
    assert code == 0
    assert SECRET.fullmatch(out)
    secret = out.strip()
    assert secret not in err
    assert "(web) for ever, for: call:Order.checkout sql" in err
    for arguments in (("list", SHOP), ("list", "--json", SHOP), ("revoke", "web", SHOP)):
        assert secret[13:] not in "".join(map(str, keys(*arguments)))


def test_key_made_opens_a_gateway(keys: Run) -> None:
    """A printed secret is admitted as the named principal."""
    _, out, _ = keys("add", "web", "--scope", "read:Item", "--data", "data", SHOP)
    door = Authenticator.of(Config(Path("data")), load_app(SHOP))
    headers = [(b"authorization", f"Bearer {out.strip()}".encode())]
    assert door.identify(headers) == Principal("web", frozenset({Scope("read:Item")}), "web")


def test_first_key_is_announced(keys: Run) -> None:
    """Only the first key says that it ends anonymity."""
    assert "from now on" in keys("add", "a", "--scope", "*", SHOP)[2]
    assert "from now on" not in keys("add", "b", "--scope", "*", SHOP)[2]


def test_list_shows_who_may_do_what_until_when(keys: Run) -> None:
    """People and programs read the same; an end that has passed would be said."""
    assert keys("list", SHOP) == (0, "There are no keys.\n", "")
    _, out, _ = keys("add", "web", "--scope", "sql", "--expires", "90m", SHOP)
    code, table, _ = keys("list", "--data", ".penstock/shop")
    assert code == 0
    assert re.search(r"web +\S{4} +\d{4}-\d\d-\d\d +until \d{4}-\d\d-\d\d \d\d:\d\dZ +sql", table)
    (shown,) = json.loads(keys("list", SHOP, "--json")[1])
    assert shown.keys() == {"id", "name", "last", "scopes", "created", "expires", "expired"}
    assert (shown["id"], shown["last"]) == (out[4:12], out.strip()[-4:])
    assert (shown["scopes"], shown["expired"]) == (["sql"], False)


def test_revoke_takes_name_or_id(keys: Run) -> None:
    """A key goes by either, once."""
    _, first, _ = keys("add", "a", "--scope", "*", SHOP)
    keys("add", "b", "--scope", "*", SHOP)
    assert keys("revoke", first[4:12], SHOP)[:2] == (0, f"Revoked key {first[4:12]} (a).\n")
    assert keys("revoke", "b", "--data", ".penstock/shop")[0] == 0
    code, _, err = keys("revoke", "b", SHOP)
    assert code == 2
    assert "no key is named 'b'; the keys are: none" in err


def test_all_wrong_scopes_are_named_with_near_misses(keys: Run) -> None:
    """A key that could open nothing is not made, and one try shows every mistake."""
    words = ("call:Itme.add", "call:Item.ad", "read:Usr", "root")
    code, out, err = keys("add", "web", *(f"--scope={one}" for one in words), SHOP)
    assert (code, out) == (2, "")
    assert "did you mean Item?" in err
    assert "did you mean add?" in err
    assert "did you mean User?" in err
    assert "'root' is not a scope; the forms are *, admin, sql" in err
    assert not Path(".penstock").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "web", SHOP), "Missing option '--scope'"),
        (("add", "web", "--scope", "sql", "--expires", "soon", SHOP), "for example 30d"),
        (("add", "web", "--scope", "sql", "--expires", "0d", SHOP), "for example 30d"),
        (("add", "web", "--scope", "sql", "--expires", "99999w", SHOP), "for example 30d"),
        (("add", "0123abcd", "--scope", "sql", SHOP), "which are an id"),
        (("add", "a\nb", "--scope", "sql", SHOP), "cannot be the name of a key"),
        (("list",), "name the application, or give its data directory"),
        (("revoke", "web"), "name the application, or give its data directory"),
    ],
)
def test_wrong_use_exits_with_2(keys: Run, arguments: tuple[str, ...], message: str) -> None:
    """Errors of the caller are named, and no key is made."""
    code, out, err = keys(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_damaged_file_is_an_error(keys: Run) -> None:
    """No key is listed, added or revoked on top of damage."""
    keys("add", "web", "--scope", "sql", SHOP)
    file = Path(".penstock/shop/keys.json")
    file.write_text(file.read_text().replace('"sql"', '"*"'))
    damaged = file.read_bytes()
    for arguments in (("list",), ("add", "b", "--scope", "sql"), ("revoke", "web")):
        code, _, err = keys(*arguments, SHOP)
        assert code == 1
        assert "[corrupt]" in err
        assert "keys.json" in err
    assert file.read_bytes() == damaged
