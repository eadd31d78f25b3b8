"""The command line: its help, its errors, and the effect of each command with everything real but Spark."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock.base.ids import RequestId
from penstock.cli import error_output, main
from penstock.deployment.loading import load_app
from penstock.errors import BY_CODE, ConfigError
from penstock.log.api import Entry
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.checkout import SHOP
from tests.docs.conftest import Run
from tests.serial_driver import SerialDriver


def declared(group: Any, before: str = "") -> Iterator[str]:
    """Yield the words of each command that is declared and not hidden; a group is before its commands."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if not command.hidden:
            yield f"{before}{name}"
            if hasattr(command, "list_commands"):
                yield from declared(command, f"{before}{name} ")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """Run the shop without Spark and return its data directory."""
    data = tmp_path / ".penstock" / "shop"
    driver = SerialDriver(SHOP, Config(data))
    driver.start()
    with presence.present(data, "driver", SHOP):
        yield data
    driver.stop()


def stock_of(amount: int) -> str:
    return f'"Item: i1 stock updated to: {amount}"\n'


def test_help_of_each_command(penstock: Run) -> None:
    """It has an example to copy; and each command has `--json`, so that a program can read each error."""
    commands = list(declared(get_command(main.application)))
    assert len(commands) > 40
    groups = {command.rpartition(" ")[0] for command in commands}
    for command in commands:
        code, out, _ = penstock(*command.split(), "--help")
        assert code == 0
        assert re.search(rf"^ +(\w+=\w+ )?penstock {command} ?", out, re.MULTILINE), command
        assert command in groups or re.search(r"^  --json", out, re.MULTILINE), command


def test_help_lists_every_command(penstock: Run) -> None:
    """The commands that the help lists are those that exist."""
    _, out, _ = penstock("--help")
    _, _, table = out.partition("\nCommands:\n")
    listed = re.findall(r"^  ([a-z][a-z-]*) {2,}\S", table, re.MULTILINE)
    commands = declared(get_command(main.application))
    assert sorted(listed) == sorted({command.partition(" ")[0] for command in commands})


def test_every_error_code_has_advice() -> None:
    """No error leaves a person without a next step, and no advice is for an error that is gone."""
    assert BY_CODE.keys() == error_output.ADVICE.keys()


def test_user_error_exits_with_2_and_one_message(penstock: Run) -> None:
    """A wrong application is one message with a code and advice, and no traceback."""
    code, _, err = penstock("explain", "nowhere/app.py")
    assert code == 2
    assert "[config]" in err
    assert "nowhere" in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback(penstock: Run) -> None:
    """`--debug` raises the error itself, at any place on the line."""
    with pytest.raises(ConfigError):
        penstock("explain", "nowhere/app.py", "--debug")


def test_unknown_flag_exits_with_2(penstock: Run) -> None:
    """A flag that does not exist is the caller's error."""
    code, _, err = penstock("driver", "--nonsense")
    assert code == 2
    assert "nonsense" in err


def test_wrong_settings_are_all_named(penstock: Run) -> None:
    """A command complains of every setting at once."""
    code, _, err = penstock("driver", SHOP, "--partitions", "-1", "--set", "pol_ms=3")
    assert code == 2
    assert "--partitions: partitions = -1: must be at least 0" in err
    assert "did you mean poll_ms" in err


def test_call_prints_the_reply_as_json(penstock: Run, shop: Path) -> None:
    """A request's value goes to standard output, alone."""
    assert penstock("call", SHOP, "Item", "i1", "create", "price=3", "stock=10") == (
        0,
        '"i1"\n',
        "",
    )
    assert penstock("call", SHOP, "Item", "i1", "add", "5")[1] == stock_of(15)
    assert penstock("call", SHOP, "Item", "i1", "exists")[1] == "true\n"


def test_call_takes_references_and_named_arguments(penstock: Run, shop: Path) -> None:
    """An argument is bare text, JSON or name=value; a reference is written as its key."""
    penstock("call", SHOP, "Item", "i1", "create", "price=3")
    penstock("call", SHOP, "User", "u1", "create", "credit=7")
    penstock("call", SHOP, "Order", "o1", "create", "user_id=u1", 'items=[["i1", 2]]')
    _, out, _ = penstock("call", SHOP, "Order", "o1", "addItem", "i1", "quantity=2")
    assert out == '"Item: i1 added to: o1 price updated to: 6"\n'


def test_call_derives_a_key_for_a_dash(penstock: Run, shop: Path) -> None:
    """A creation without a key answers the key that it derived."""
    _, out, _ = penstock("call", SHOP, "User", "-", "create", "credit=7")
    assert re.fullmatch(r'"[0-9a-f-]{36}"\n', out)


def test_call_passes_negative_numbers(penstock: Run, shop: Path) -> None:
    """A word that looks like a flag is an argument where no flag has its name."""
    penstock("call", SHOP, "Item", "i1", "create", "price=3", "stock=10")
    assert penstock("call", SHOP, "Item", "i1", "add", "-4")[1] == stock_of(6)
    assert penstock("call", SHOP, "Item", "i1", "add", "--", "-4")[1] == stock_of(2)


def test_refused_request_exits_with_3(penstock: Run, shop: Path) -> None:
    """The application's refusals differ from failures."""
    code, out, err = penstock("call", SHOP, "Item", "absent", "add", "1")
    assert (code, out) == (3, "")
    assert "[no-such-entity]" in err
    assert "absent" in err


def test_same_request_id_takes_effect_once(penstock: Run, shop: Path) -> None:
    """A repeated call gets the recorded answer, also long after it was processed."""
    penstock("call", SHOP, "Item", "i1", "create", "price=3", "stock=10")
    for _ in range(2):
        assert penstock("call", SHOP, "Item", "i1", "add", "5", "--request-id", "a")[1] == stock_of(
            15
        )
    assert penstock("call", SHOP, "Item", "i1", "add", "0")[1] == stock_of(15)


def test_request_id_with_another_body_is_refused(penstock: Run, shop: Path) -> None:
    """An id always means one request."""
    penstock("call", SHOP, "Item", "i1", "create", "price=3", "--request-id", "a")
    code, _, err = penstock("call", SHOP, "Item", "i1", "create", "price=4", "--request-id", "a")
    assert code == 2
    assert "[request-conflict]" in err


def test_scheduled_request_is_cancelled(penstock: Run, shop: Path) -> None:
    """A cancelled request has an outcome and no effect, everywhere where its history is shown."""
    app = load_app(SHOP)
    penstock("call", SHOP, "Item", "i1", "create", "price=3", "--request-id", "a")
    body, hint = app.request("Item", "i1", "add", (5,), {})
    with closing(DataDirectory(shop).open_log(Config(shop))) as log:
        for name in ("later-1", "later-2"):
            log.schedule(Entry(RequestId(name), body, hint, 1), 2**62)
    code, _, err = penstock("cancel", "later", SHOP)
    assert (code, "later-1, later-2" in err) == (2, True)
    assert [penstock("cancel", "later-1", SHOP)[0] for _ in range(2)] == [0, 0]
    out = penstock("cancel", "later-2", SHOP, "--json")[1]
    assert json.loads(out) == {"request_id": "later-2", "status": "cancelled"}
    assert "[too-late]" in penstock("cancel", "a", SHOP)[2]
    assert "[request]" in penstock("cancel", "unknown", "--data", str(shop))[2]
    code, _, err = penstock("call", SHOP, "Item", "i1", "add", "5", "--request-id", "later-1")
    assert (code, "[cancelled]" in err) == (3, True), err
    trace = json.loads(penstock("trace", "later-1", SHOP, "--json")[1])
    assert (trace["call"], trace["reply"]["error"]["code"]) == ("Item/i1.add(5)", "cancelled")
    assert (trace["as_recorded"], trace["root"], trace["entities"]) == (True, None, [])
    replayed = json.loads(penstock("replay", SHOP, "--json")[1])
    assert (replayed["divergence"], replayed["requests"]) == (None, 3)
    assert penstock("verify", SHOP)[0] == 0


def test_wrong_arguments_are_refused_before_the_log(penstock: Run, shop: Path) -> None:
    """A request that cannot run is never appended."""
    for words in (["Item", "i1", "ad", "5"], ["Item", "i1", "add", "x"], ["Itm", "i1", "add"]):
        code, _, err = penstock("call", SHOP, *words)
        assert code == 2
        assert "[request]" in err
    assert penstock("call", SHOP, "Item")[0] == 2


def test_call_without_a_runtime_is_durable(penstock: Run, tmp_path: Path) -> None:
    """The request waits in the log, the caller is told, and the next start processes it."""
    words = ("call", SHOP, "Item", "i1", "create", "price=3", "--request-id", "a", "--timeout")
    code, _, err = penstock(*words, "0")
    assert code == 1
    assert "No penstock run is running" in err
    assert "[timed-out]" in err
    driver = SerialDriver(SHOP, Config(tmp_path / ".penstock" / "shop"))
    driver.start()
    code, out, _ = penstock(*words, "30")
    driver.stop()
    assert (code, out) == (0, '"i1"\n')


READING = """
from penstock import App, Entity, key, readonly

class Till(Entity):
    name: str = key()
    paid: int = 0

    @readonly
    def shown(self, times: int = 1) -> int:
        print("a handler speaks")
        return self.paid * times

    @readonly
    def taken(self) -> None:
        self.paid = 0

app = App("tills", Till)
"""


def test_readonly_call_reads_the_newest_state(penstock: Run, tmp_path: Path) -> None:
    """A `@readonly` call is answered without a request, with or without a driver."""
    spec = tmp_path / "reading_tills.py"
    spec.write_text(READING)
    data = tmp_path / ".penstock" / "tills"
    assert penstock("call", str(spec), "Till", "a", "shown")[0] == 3
    driver = SerialDriver(str(spec), Config(data))
    driver.start()
    try:
        with presence.present(data, "driver", str(spec)):
            penstock("call", str(spec), "Till", "a", "create", "paid=7")
            end = driver.log.end()
            told = penstock("call", str(spec), "Till", "a", "shown", "3")
            assert told == (0, "21\n", "a handler speaks\n")
            code, _, err = penstock("call", str(spec), "Till", "a", "taken")
            assert code == 3
            assert "[readonly-violation]" in err
            assert driver.log.end() == end
            recorded = penstock("call", str(spec), "Till", "a", "shown", "--request-id", "b")
            assert recorded[1].endswith("7\n")  # after the words of the handler in the driver
            assert driver.log.end() == end + 1
    finally:
        driver.stop()
    assert penstock("call", str(spec), "Till", "a", "shown")[1] == "7\n"
