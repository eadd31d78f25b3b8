"""Random visits and erasures: the driver's streams, waits and state are those of the oracle, and history goes on."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, RequestId
from penstock.base.subject_keys import KeyTree, MemoryKeys
from penstock.cli.main import execute
from penstock.engine.streams.paused_flows import resuming_id
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.atoms import AtomReader, decode_atom
from penstock.log.api import Entry
from penstock.model.request import encode_continuation
from penstock.process.erasures import Erasures
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.committed import state_of
from tests.differential.persons import Persons
from tests.differential.programs import beside_one_thread, drawn
from tests.unit.history.visit_app import Visit

VISITORS = "tests.unit.history.visit_app:app"
names = st.sampled_from(["ada", "bob", "eve"])
texts = st.sampled_from(["hello", "rename", "portal", "other", "fail", "a long greeting"])
atoms = st.lists(st.tuples(names, texts), max_size=4)
steps = st.one_of(
    st.tuples(st.just("visit"), atoms),
    st.tuples(st.just("visit"), atoms),
    st.tuples(st.sampled_from(["create", "erase"]), names),
    st.tuples(st.sampled_from(["run", "resume", "skip"]), st.none()),
)


class Visitors:
    """The application on the driver, and the number of its pauses that were ended so far."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.persons = Persons(folder, VISITORS, partitions=partitions)
        self.pauses = 0
        for name in ("ada", "bob"):
            self.take("create", name)

    def take(self, step: str, given_part: object) -> None:
        """Append what a step says, or run the log as it is now."""
        persons = self.persons
        if step == "run":
            persons.runtime.advance(persons.runtime.log.end())
        elif step == "create":
            persons.append("User", str(given_part), "create", name=f"a {given_part}")
        elif step == "erase":
            subject = EntityKey(f"User/{given_part}")
            persons.order(subject, Erasures(persons.folder).generation(subject))
        elif step in ("resume", "skip"):
            self.pauses += 1
            record = resuming_id("careful", self.pauses, skip=step == "skip")
            entry = Entry(RequestId(record), encode_continuation(), b"", 0)
            persons.runtime.log.append([entry])
        else:
            assert isinstance(given_part, list)
            events = [Visit(persons.user(name), text) for name, text in given_part]
            persons.publish("visits", *events)

    def finish(self) -> None:
        """Run everything, with what the last records have caused."""
        log, done = self.persons.runtime.log, -1
        while log.end() != done:
            done = log.end()
            self.persons.runtime.advance(done)


def compare(persons: Persons, tree: KeyTree) -> None:
    """Let the oracle process the log with the keys of the beginning, and compare all streams and rows."""
    log, topology = persons.runtime.log, persons.app.topology
    persons.app.use_keys(MemoryKeys(tree))
    serial = LocalRuntime(persons.app, secret=persons.runtime.journal.secret)
    serial.replay(log.read(log.start(), log.end()))
    reader = AtomReader(persons.runtime.journal)
    for name in topology.streams:
        published = [decode_atom(atom.events) for atom in reader.atoms(name, 0)]
        assert published == serial.streams[name], name
    assert serial.state == state_of(persons.runtime.journal)


@beside_one_thread
@drawn(6)
@given(st.lists(steps, min_size=4, max_size=16), st.integers(1, 4))
def test_erased_events_equal_one_thread(
    given_steps: list[tuple[str, object]], partitions: int
) -> None:
    """Persons are erased while events about them wait, are held, are asked for, or are not taken yet."""
    with tempfile.TemporaryDirectory() as folder:
        visitors = Visitors(Path(folder) / "data", partitions)
        persons = visitors.persons
        tree = KeyFile(persons.folder / SUBJECT_KEYS).tree()
        try:
            for step, given_part in given_steps:
                visitors.take(step, given_part)
            visitors.finish()
            compare(persons, tree)
        finally:
            persons.runtime.close()
            persons.app.keys = None
        for command in ("replay", "verify"):
            assert execute([command, VISITORS, "--data", str(persons.folder)]) == 0
