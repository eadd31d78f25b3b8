"""Random erasures between requests: the driver's outcomes and state are those of the oracle, and history goes on."""

import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, Lsn
from penstock.base.subject_keys import KeyTree, MemoryKeys
from penstock.cli.main import execute
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.replies import find_reply
from penstock.model.control import is_control
from penstock.model.personal import ERASED
from penstock.model.reply import Reply
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Erasures
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.committed import state_of
from tests.differential.inline import ONLY
from tests.differential.persons import PERSONS, Persons
from tests.differential.programs import beside_one_thread, drawn

TOMORROW_US = 2 * 86_400 * 1_000_000
names = st.sampled_from(["ada", "bob", "nobody"])
steps = st.one_of(
    st.tuples(
        st.sampled_from(["create", "rename", "refuse", "visit", "invite", "erase", "stale"]), names
    ),
    st.tuples(st.sampled_from(["run", "due"]), st.just("")),
)


def append(persons: Persons, step: str, name: str) -> None:
    """Append what a step says; `stale` orders the erasure that the person had before, or will have."""
    if step == "create":
        persons.append("User", name, "create", name=f"a {name}")
    elif step in ("rename", "refuse"):
        persons.append("User", name, step, f"new {name}")
    elif step in ("visit", "invite"):
        persons.append("Page", "home", step, persons.user(name), "hello")
    else:
        subject = EntityKey(f"User/{name}")
        generation = Erasures(persons.folder).generation(subject)
        persons.order(subject, generation if step == "erase" else (generation + 1) % 2)


def outcomes(persons: Persons, start: int) -> list[Reply]:
    """Return the replies from a position on, with those that nobody can read any more as `<erased>`."""
    with closing(DataDirectory(persons.folder).open_journal(persons.app)) as journal:
        end = persons.runtime.log.end()
        return [find_reply(journal, (ONLY, Lsn(lsn))) for lsn in range(start, end)]


def compare(persons: Persons, committed: list[Reply], tree: KeyTree) -> None:
    """Let the oracle process the log with the keys of the beginning, and compare outcomes and state."""
    log = persons.runtime.log
    persons.app.use_keys(MemoryKeys(tree))
    serial = LocalRuntime(persons.app, secret=persons.runtime.journal.secret)
    records = log.read(log.start(), log.end())
    expected = serial.replay(records)
    for record, was, now in zip(records, committed, expected, strict=True):
        assert was.error == now.error, record
        is_certificate = is_control(record.body) and was.error is None
        if not is_certificate and ERASED.encode() not in was.data:
            assert was.data == now.data, record
    assert serial.state == state_of(persons.runtime.journal)


@beside_one_thread
@drawn(6)
@given(st.lists(steps, min_size=4, max_size=14), st.integers(1, 4))
def test_erasures_equal_one_thread(given_steps: list[tuple[str, str]], partitions: int) -> None:
    """Persons are erased at random, twice, before they exist, and begin again; replay and verify go on afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        persons = Persons(Path(folder) / "data", partitions=partitions)
        tree = KeyFile(persons.folder / SUBJECT_KEYS).tree()
        log, committed = persons.runtime.log, list[Reply]()
        try:
            persons.send("Page", "home", "create")
            persons.append("User", "ada", "create", name="Ada")
            for step, name in [*given_steps, ("due", "")]:
                if step == "due":
                    log.promote(TOMORROW_US)
                if step in ("run", "due"):
                    persons.run()
                    committed += outcomes(persons, len(committed))
                else:
                    append(persons, step, name)
            while log.end() > len(committed):  # what the last requests have sent
                persons.run()
                committed += outcomes(persons, len(committed))
            compare(persons, committed, tree)
        finally:
            persons.runtime.close()
            persons.app.keys = None
        for command in ("replay", "verify"):
            assert execute([command, PERSONS, "--data", str(persons.folder)]) == 0
