"""The effect process with a provider over HTTP that answers, cuts, hangs and dies, and with effects that misbehave."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.effects.callers import Call, CallEnd, CallerCode, start_caller
from penstock.effects.secrets import Secrets
from penstock.history.restore import fork
from penstock.log.clock import wall_clock_us
from penstock.model.request import Request
from penstock.model.waiting_effect import waiting_row
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.effect_files import lineage_of, read_effects_report
from penstock.process.view_files import Held, end_hold, hold
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.effects.provider import Provider, provided
from tests.effects.till import SPEC, Till, calling, running, wait_until


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provided() as provider:
        yield provider


@pytest.fixture(scope="module")
def till(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    """A till whose processes all run."""
    with running(tmp_path_factory.mktemp("till") / "data", provider.url) as till, calling(till):
        yield till


def created(till: Till, *orders: str) -> None:
    for order in orders:
        till.send("create", order)


def test_each_outcome_is_told_once(till: Till, provider: Provider) -> None:
    """A call that is cut is made again with the same id; one that is refused for good, or hangs, fails."""
    orders = ("fine", "cut-1", "dead-1", "hang-1", "declined-1", "twice-1")
    created(till, *orders)
    for order in orders:
        till.send("check_out", order)
    told = till.await_outcomes(1, *orders)
    assert told["fine"] == ["done: charge fine"]
    assert told["cut-1"] == ["done: charge cut-1"]
    assert told["twice-1"] == ["done: charge twice-1"]
    assert told["declined-1"] == ["failed: Final: declined"]
    assert told["hang-1"] == ["failed: it did not return within 1 s"]
    assert told["dead-1"][0].startswith("failed: RemoteDisconnected: ")
    calls = {order: provider.calls[f"charge/{order}"] for order in orders}
    assert calls == {"fine": 1, "cut-1": 2, "dead-1": 3, "hang-1": 3, "declined-1": 1, "twice-1": 1}
    ids = [provider.ids[f"charge/{order}"] for order in orders]
    assert [len(each) for each in ids] == [1] * len(orders), "the tries of an effect have one id"
    assert len(set.union(*ids)) == len(orders), "and no other effect has it"


def test_sql_shows_effects_at_each_epoch(till: Till, tmp_path: Path) -> None:
    """Those that wait, dead letters, and those that are done, as the followed tables and as a past epoch have them."""
    created(till, "sql-1", "declined-9")
    for order in ("sql-1", "declined-9"):
        till.send("check_out", order)
    till.await_outcomes(1, "sql-1", "declined-9")
    with (
        closing(DataDirectory(till.data).open_journal(till.app)) as journal,
        closing(View(tmp_path, till.app, journal, ViewConfig(time_ms=60_000))) as view,
    ):
        view.start()

        def rows(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row.values()) for row in view.ask(Query(query)).table.to_pylist()]

        chosen = "SELECT * FROM effects {} WHERE arguments IN ({}) ORDER BY arguments, state"
        texts = """'["sql-1",500]', '["declined-9",500]'"""
        now = rows(chosen.format("", texts))
        known = [(function, state, tries, error) for _, function, _, state, tries, error, *_ in now]
        assert known == [("charge", "dead", 1, "Final: declined"), ("charge", "done", 1, "")]
        assert now[1][2] == now[1][0].partition("~~")[0]
        assert now[1][7] < now[1][8]
        epoch = view.ask(Query("SELECT 1")).epoch
        assert rows(chosen.format(f"AS OF EPOCH {epoch}", texts)) == now
        [(sent,)] = rows("SELECT epoch FROM requests WHERE arguments = '[\"sql-1\",500]'")
        past = rows(chosen.format(f"AS OF EPOCH {sent}", """'["sql-1",500]'"""))
        assert [row[3] for row in past] == ["waiting"]
        assert rows(chosen.format(f"AS OF EPOCH {sent - 1}", """'["sql-1",500]'""")) == []


def test_misdeeds_cost_their_own_effect_alone(till: Till) -> None:
    """Each ends within its bounds, as a failure of its own effect, and no message has a secret."""
    expected = {
        "exit": "its process ended with exit code 7",
        "system-exit": "SystemExit: ",
        "base": "BaseException: a BaseException",
        "fault": "its process was ended by SIGSEGV",
        "memory": "LimitExceeded: allocated more than memory_bytes",
        "number": "the result of poison: Expected `str`, got `int`",
        "large": "LimitExceeded: ",
        "object": "the result of poison",
        "hang": "it did not return within 5 s",
        "pipe": "its process ",
        "secret": "ValueError: the key is <secret>",
        "secret-result": "the result of poison contains the secret CARD_KEY",
        "no-secret": "the secret NO_SUCH_SECRET is missing",
    }
    created(till, *expected)
    for how in expected:
        till.send("misbehave", how, how)
    told = till.await_outcomes(1, *expected)
    for how, [outcome] in told.items():
        assert outcome.startswith(f"failed: {expected[how]}"), how
    for path in till.data.rglob("*"):
        if path.is_file():
            assert b"sk_live_9x8y7z" not in path.read_bytes(), path


def test_async_effects_share_a_loop(till: Till) -> None:
    """Each has its outcome; a call that keeps the loop is one that does not return in time."""
    orders = [f"async-{number}" for number in range(20)]
    created(till, *orders)
    for order in orders:
        till.send("tell", order)
    told = till.await_outcomes(1, *orders)
    assert told == {order: [f"done: notify {order}"] for order in orders}


def test_a_saga_runs_through_the_log(till: Till, provider: Provider) -> None:
    """A workflow waits for effects in another process; the second charge fails, and the first one is undone."""
    till.append("purchases", "p1")
    provider.await_call("notify/undo-p1")
    assert provider.calls["charge/declined-p1"] == 1


def test_a_limit_holds(till: Till) -> None:
    """One call begins when the one before has ended."""
    created(till, "crowd")
    till.send("crowd", "crowd", 9)
    told = till.await_outcomes(9, "crowd")["crowd"]
    times = sorted(tuple(map(float, each.split())) for each in told)
    assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_operators_retry_and_discard(
    till: Till, provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead letter that is tried again tells another outcome, and keeps its id; a discarded one is gone."""
    created(till, "declined-2")
    request = f"{till.send('check_out', 'declined-2')}~~1"
    till.await_outcomes(1, "declined-2")
    data = ["--data", str(till.data)]

    def letters() -> dict[str, dict[str, str]]:
        capsys.readouterr()
        assert execute(["effects", "list", *data, "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)["effects"]
        return {each["id"]: each for each in listed}

    wait_until(lambda: letters().get(request, {}).get("state") == "dead")
    assert letters()[request]["error"] == "Final: declined"
    assert execute(["effects", "retry", request, *data]) == 0
    assert till.await_outcomes(2, "declined-2")["declined-2"] == ["failed: Final: declined"] * 2
    assert provider.calls["charge/declined-2"] == 2
    assert len(provider.ids["charge/declined-2"]) == 1
    assert execute(["effects", "discard", request, *data]) == 0
    wait_until(lambda: request not in letters())
    assert till.effect(request) is None
    assert execute(["effects", "retry", request, *data]) == 2
    assert "no effect with the id" in capsys.readouterr().err


def test_others_wait_for_nothing_that_hangs(till: Till) -> None:
    """While effects of one function hang, and more wait, those of another function have their outcomes."""
    hanging = [f"hang-{number}" for number in range(10, 22)]
    others = [f"swift-{number}" for number in range(20)]
    created(till, *hanging, *others)
    for order in hanging:
        till.send("check_out", order)
    for order in others:
        till.send("tell", order)
    till.await_outcomes(1, *others)
    assert any(not till.outcomes(order) for order in hanging), "they still hang"


def test_short_calls_do_not_wait_behind_one_that_hangs(till: Till) -> None:
    """They are given ahead to a process; if a call hangs, or ends it, they are made by others, and none counts as a try."""
    created(till, "short", "mix")
    till.send("mix", "short", ["quick"] * 30)
    till.await_outcomes(30, "short")
    kinds = ["quick"] * 60
    kinds[10], kinds[30] = "hang", "exit"
    till.send("mix", "mix", kinds)
    told = till.await_outcomes(60, "mix")["mix"]
    assert told[-1] == "2 failed it did not return within 1.5 s", "the others are told before"
    assert Counter(told) == {
        "1 done": 58,
        "2 failed its process ended with exit code 7": 1,
        "2 failed it did not return within 1.5 s": 1,
    }


def test_a_call_that_was_given_ahead_is_taken_back_or_made(till: Till) -> None:
    """Never both: a call that the process has read is not taken back, and one that is taken back has no end."""
    secrets = Secrets({}, {})
    code = CallerCode(till.app, till.data, secrets, 64 << 20, 1 << 20, 0, threading.Lock())
    caller = start_caller(code, on_loop=False, others=())
    unread = caller.unread
    assert unread is not None
    try:
        for number, how in enumerate(("nap", "quick", "quick")):
            given = msgspec.Raw(msgspec.msgpack.encode([how])), msgspec.Raw(b"\x80")
            row = waiting_row(RequestId("r~~1"), Request("", None, "mixed", *given), 1)
            caller.call(Call(number, "id", row, 30.0), time.monotonic() + 30)
            if how == "nap":
                wait_until(lambda: not wait([unread], 0))
        taken = caller.take_back()
        ends: list[CallEnd] = []
        while caller.calls:
            assert wait([caller.source], 60), "the call does not end"
            ends += caller.ends()[0]
        assert (taken, [end.number for end in ends]) == ([1, 2], [0])
    finally:
        caller.end()


def test_kills_repeat_ids_and_no_outcome(tmp_path: Path, provider: Provider) -> None:
    """The effect process is killed again and again, by a seed: calls repeat with their ids, outcomes do not."""
    seed = random.Random(31)
    orders = [f"killed-{number}" for number in range(60)]
    with running(tmp_path / "data", provider.url) as till:
        created(till, *orders)
        sent = iter(orders)
        for _ in range(6):
            for _ in range(10):
                till.send("check_out", next(sent))
            with calling(till):
                time.sleep(seed.random() * 1.5)
        with calling(till):
            told = till.await_outcomes(1, *orders)
            till.send("create", "last")
            till.send("check_out", "last")
            till.await_outcomes(1, "last")
        assert told == {order: [f"done: charge {order}"] for order in orders}
        assert all(len(till.outcomes(order)) == 1 for order in orders)
        assert all(len(provider.ids[f"charge/{order}"]) == 1 for order in orders)


def test_once_is_never_called_twice(tmp_path: Path, provider: Provider) -> None:
    """After the death of the process in the call, the outcome is unknown; an effect that was not begun is called."""
    with running(tmp_path / "data", provider.url) as till:
        created(till, "hang-mail", "mail-2")
        with calling(till):
            till.send("post", "hang-mail")
            provider.await_call("mail/hang-mail")
        till.send("post", "mail-2")
        with calling(till):
            told = till.await_outcomes(1, "hang-mail", "mail-2")
        assert told["mail-2"] == ["done: mail mail-2"]
        assert told["hang-mail"] == ["unknown: its process ended before the result was noted"]
        assert provider.calls["mail/hang-mail"] == provider.calls["mail/mail-2"] == 1


def test_a_copy_calls_nothing_until_it_is_resumed(tmp_path: Path, provider: Provider) -> None:
    """A fork has other ids than the original; a held directory calls nothing."""
    with running(tmp_path / "data", provider.url) as till:
        created(till, "held-1")
        hold(till.data, Held("restored from a backup", wall_clock_us()))
        request = f"{till.send('check_out', 'held-1')}~~1"
        with calling(till):
            wait_until(lambda: till.effect(request) is not None)
            wait_until(lambda: getattr(read_effects_report(till.data), "state", "") == "held")
            assert provider.calls["charge/held-1"] == 0
            copy = tmp_path / "copy"
            branch = fork(till.data, "till", copy, None)
            assert set(branch.held_effects) == set(till.app.effects)
            assert (copy / "held.json").exists()
            assert lineage_of(copy, b"secret") != b"secret" == lineage_of(till.data, b"secret")
            end_hold(till.data)
            assert till.await_outcomes(1, "held-1")["held-1"] == ["done: charge held-1"]


def test_the_queue_is_a_cache(tmp_path: Path, provider: Provider) -> None:
    """If it is damaged, the process fills it again, also from a snapshot."""
    with running(tmp_path / "data", provider.url) as till:
        created(till, "cache-1", "cache-2")
        request = f"{till.send('check_out', 'cache-1')}~~1"
        wait_until(lambda: till.effect(request) is not None)
        queue = till.data / "effects" / "queue.sqlite"
        queue.parent.mkdir(exist_ok=True)
        queue.write_bytes(b"no database" * 1_000)
        assert execute(["snapshot", SPEC, "--data", str(till.data)]) == 0
        with calling(till) as pid:
            assert till.await_outcomes(1, "cache-1")["cache-1"] == ["done: charge cache-1"]
            children = psutil.Process(pid).children()
            assert children
        wait_until(lambda: not any(map(_is_alive, children)))


def _is_alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_a_secret_may_be_exchanged(tmp_path: Path, provider: Provider) -> None:
    """The file is read again when it has changed; one that cannot be used stops the calls, and says so."""
    with running(tmp_path / "data", "http://127.0.0.1:9") as till:
        created(till, "key-1", "key-2")
        secrets = till.config.effects.secrets
        with calling(till):
            till.send("check_out", "key-1")
            assert "Connection refused" in till.await_outcomes(1, "key-1")["key-1"][0]
            good = secrets.read_text().replace("http://127.0.0.1:9", provider.url)
            secrets.write_text("no secret")
            wait_until(lambda: "line 1" in getattr(read_effects_report(till.data), "reason", ""))
            till.send("check_out", "key-2")
            secrets.write_text(good)
            assert till.await_outcomes(1, "key-2")["key-2"] == ["done: charge key-2"]
