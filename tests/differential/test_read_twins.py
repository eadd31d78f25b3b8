"""Reads of a data directory give the outcomes of the local runtime at the same point of the order."""

import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.log.api import Entry, Record
from penstock.process.config import Config
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.reads.messages import Outcomes, Question, ReadCall, ReadOutcome, Started
from penstock.runtime.reads.reader import CallReader
from tests.differential.machine import app
from tests.differential.programs import BEGINNING_US, Call, History, histories, programs, whos
from tests.serial_driver import SerialDriver

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
