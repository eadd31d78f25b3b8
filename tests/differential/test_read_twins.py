"""Reads of a data directory give the outcomes of the local runtime at the same point of the order."""

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.engine.rows import RowsWanted, decode_rows
from penstock.errors import Corrupt
from penstock.log.api import Entry, Record
from penstock.model.call import Call as Sent
from penstock.model.call import encoded
from penstock.process.config import Config
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.reads import reader as reads
from penstock.runtime.reads.messages import (
    Failed,
    Outcomes,
    Question,
    ReadCall,
    ReadOutcome,
    Started,
)
from penstock.runtime.reads.reader import CallReader
from tests.deployments import kept_imports, write_version
from tests.differential.machine import app
from tests.differential.programs import BEGINNING_US, Call, History, histories, programs, whos
from tests.serial_driver import SerialDriver

__all__ = ["kept_imports"]

looks = st.builds(Call, st.just("look"), whos, programs)


def written(config: Config, sent: list[tuple[str, Call]]) -> dict[EntityKey, bytes]:
    """Process requests in epochs; return the state of the local runtime after the same requests."""
    driver = SerialDriver("tests.differential.machine:app", config)
    driver.start()
    records = []
    try:
        for number, (name, call) in enumerate(sent):
            body, hint = call.encode(app)
            driver.log.append([Entry(RequestId(name), body, hint, BEGINNING_US)])
            records.append(Record(Lsn(number), RequestId(name), body, BEGINNING_US))
        assert driver.wait_until(Lsn(len(sent)), 60_000)
        oracle = LocalRuntime(app, secret=driver.journal.secret)
    finally:
        driver.stop()
    oracle.replay(records)
    return oracle.state


def answered(reader: CallReader, question: Question) -> tuple[Epoch, list[ReadOutcome]]:
    started, *parts = reader.answer(question)
    assert isinstance(started, Started)
    return started.epoch, [
        one for part in parts if isinstance(part, Outcomes) for one in part.items
    ]


@given(history=histories(), read=st.lists(looks, min_size=1, max_size=4), is_careful=st.booleans())
@settings(max_examples=15)
def test_reads_agree_with_the_oracle(
    history: History, read: list[Call], *, is_careful: bool
) -> None:
    """Values, errors and codes of `@readonly` calls are the oracle's, and the reads change nothing."""
    asked = [ReadCall(RequestId(f"q{n}"), one.encode(app)[0]) for n, one in enumerate(read)]
    with tempfile.TemporaryDirectory() as folder:
        config = Config(data=Path(folder), cores=1)
        state = written(config, history.created() + history.once())
        with closing(CallReader(app, config.data, config.limits)) as reader:
            epoch, found = answered(reader, Question(asked, is_careful))
            assert answered(reader, Question(asked)) == (epoch, found)
            oracle = LocalRuntime(app, secret=reader._secret)
    oracle.state.update(state)
    records = [
        Record(Lsn(n), one.request_id, one.body, BEGINNING_US) for n, one in enumerate(asked)
    ]
    wanted = [(reply.error, reply.data) for reply in oracle.replay(records)]
    assert [(one.error, one.data) for one in found] == wanted
    assert oracle.state == state


BIRDS = """
from penstock import App, Entity, key

class Bird(Entity):
    ring: str = key()
    name: str

app = App("birds", Bird)
"""
NAMES = ["peregrine falcon", "wandering albatross", "great spotted woodpecker"]


def damaged(*_: object) -> None:
    raise Corrupt("the journal is damaged")


@pytest.mark.usefixtures("kept_imports")
def test_a_page_over_a_damaged_store_is_that_of_a_sound_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is built again from the journal, as for a call; damage that is in no store is looked for once."""
    spec = write_version(tmp_path / "code", "pantry", BIRDS)
    config = Config(data=tmp_path / "data", cores=1)
    birds = load_app(spec)
    driver = SerialDriver(spec, config)
    driver.start()
    for number, name in enumerate(NAMES):
        body, hint = encoded(birds, Sent("Bird", f"b{number}", "create", (), {"name": name}))
        driver.log.append([Entry(RequestId(f"r{number}"), body, hint, BEGINNING_US)])
    assert driver.wait_until(Lsn(len(NAMES)), 60_000)
    driver.stop()
    question = Question([ReadCall(RequestId("page"), b"", rows=RowsWanted("Bird"))])
    with closing(CallReader(birds, config.data, config.limits)) as reader:
        _, sound = answered(reader, question)
        assert len(decode_rows(sound[0].data).rows) == len(NAMES)
        (store,) = config.data.rglob("data.mdb")
        content = store.read_bytes()
        assert NAMES[1].encode() in content
        store.write_bytes(content.replace(NAMES[1].encode(), NAMES[1].upper().encode()))
        assert answered(reader, question)[1] == sound
        looks: list[list[int]] = []
        examine = reader._stores.examine

        def look() -> list[int]:
            looks.append(examine())
            return looks[-1]

        monkeypatch.setattr(reader._stores, "examine", look)
        monkeypatch.setattr(reads, "find_rows", damaged)
        failed = [*reader.answer(question)][-1]
        assert isinstance(failed, Failed)
        assert (failed.failure.code, looks) == (Corrupt.code, [[]])
