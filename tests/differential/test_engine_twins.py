"""Random applications, histories and layouts: the engine, the serial runtime and a dumb twin agree.

The twin knows nothing of Penstock, so it finds errors that engine and serial runtime share
(both execute with the same code); the serial runtime is compared with the engine byte for byte.
"""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, split_entity_key
from penstock.model.reply import Reply
from penstock.model.request import decode_failure
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.machine import app
from tests.differential.programs import History, drawn, histories, logged, shapes, tangles
from tests.differential.simulation import Answer, Layout, Simulation
from tests.differential.twin import Name, Row, Twin

scatters: st.SearchStrategy[str | int] = st.sampled_from(["touches", "apart"]) | st.integers(0, 99)
on_one_host = st.builds(Layout, st.integers(2, 4), st.just(1), scatters)
on_many_hosts = st.builds(Layout, st.integers(2, 4), st.integers(2, 3), scatters)
cuts = st.lists(st.integers(1, 9), max_size=2)


def rows_of(state: dict[EntityKey, bytes]) -> dict[Name, Row]:
    """Decode a state as the twin holds it."""
    found = {}
    for full, data in state.items():
        kind, text = split_entity_key(full)
        described = app.entities[kind]
        values = described.decode(described.key_at(text), data)
        link = values["link"]
        name = None if link is None else name_of_reference(link)
        found[kind, described.key_at(text)] = Row(values["number"], values["items"], name)
    return found


def name_of_reference(reference: Any) -> Name:
    described = app.entities[type(reference).__name__]
    return described.name, described.key_at(described.text_of(reference))


def meaning_of(reply: Reply) -> tuple[str | None, object]:
    if reply.error is not None:
        return decode_failure(reply.data).kind, None
    return None, msgspec.msgpack.decode(reply.data)


def epochs_of(count: int, cuts: list[int]) -> list[tuple[int, int]]:
    """Cut [0, count) into runs."""
    inner = sorted({cut for cut in cuts if 0 < cut < count})
    return list(pairwise([0, *inner, count]))


def begun(history: History) -> LocalRuntime:
    """Return a serial runtime in which the history's first entities exist."""
    serial = LocalRuntime(app)
    serial.replay(logged(app, history.created())[0])
    return serial


def compare_with_serial(history: History, layout: Layout, cuts: list[int]) -> None:
    """Run a history in epochs; after each one, replies and state are those of one thread."""
    records, hints = logged(app, history.every())
    serial = begun(history)
    simulation = Simulation(app, layout, serial.state)
    for start, end in epochs_of(len(records), cuts):
        expected = [
            Answer(reply.request_id, reply.error, reply.data)
            for reply in serial.replay(records[start:end])
        ]
        assert simulation.epoch(records[start:end], hints[start:end]) == expected
        assert simulation.state == serial.state
        event("rounds", simulation.rounds)


@drawn(120)
@given(histories())
def test_serial_runtime_means_what_programs_say(history: History) -> None:
    """The serial runtime gives the values, failures and state of plain dictionaries."""
    sent = [*history.created(), *history.once()]
    serial = LocalRuntime(app)
    twin = Twin()
    for (request_id, call), record in zip(sent, logged(app, sent)[0], strict=True):
        (reply,) = serial.replay([record])
        meaning = meaning_of(reply)
        event("outcome", meaning[0])
        assert meaning == call.perform(twin, request_id)
        assert rows_of(serial.state) == twin.state


@drawn(100)
@given(histories(), on_one_host, cuts)
def test_engine_equals_one_thread(history: History, layout: Layout, cuts: list[int]) -> None:
    """For any tasks and epochs, replies and state are those of one thread, byte for byte."""
    compare_with_serial(history, layout, cuts)


@drawn(100)
@given(tangles(), on_one_host | on_many_hosts)
def test_tangle_equals_one_thread(history: History, layout: Layout) -> None:
    """If accesses depend on the writes of others, the outcome is that of one thread."""
    compare_with_serial(history, layout, [])


@drawn(60)
@given(shapes(), on_one_host | on_many_hosts, cuts)
def test_types_equal_one_thread(history: History, layout: Layout, cuts: list[int]) -> None:
    """Keys, attributes, arguments and results of every type of records are those of one thread."""
    compare_with_serial(history, layout, cuts)


@drawn(80)
@given(histories(), on_many_hosts, cuts)
def test_hosts_equal_one_thread(history: History, layout: Layout, cuts: list[int]) -> None:
    """Where entities must be shipped between hosts, the outcome is that of one thread as well."""
    compare_with_serial(history, layout, cuts)


@drawn(40)
@given(histories(least=1, most=5), on_one_host)
def test_repeated_request_has_one_reply(history: History, layout: Layout) -> None:
    """A request that is sent again under its id is processed once, and its answer is one."""
    records, hints = logged(app, [*history.every(), *history.every()])
    answers = Simulation(app, layout, {}).epoch(records, hints)
    assert [answer.request_id for answer in answers] == [name for name, _ in history.once()]
    serial = LocalRuntime(app)
    replies = serial.replay(records)
    assert serial.replay(records) == replies
