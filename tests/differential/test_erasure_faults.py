"""An erasure whose driver is killed, or whose disk is full, at any call that changes a file: it is whole in the end."""

import errno
import os
import shutil
import signal
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

import pytest

from penstock.base.ids import EntityKey
from penstock.base.subject_keys import DEPTH, KeyTree, _branch
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import Fenced, JournalUnavailable, StateUnavailable
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.process.erasures import Erasures
from tests import forked
from tests.call_faults import at_call
from tests.differential.committed import answers_of, state_of
from tests.differential.inline import Inline
from tests.differential.killed_driver import CALL, PROGRAM
from tests.differential.persons import ADA, BOB, PERSONS, Persons
from tests.differential.simulation import Answer
from tests.readable_files import texts_in

RECORDS = 7
"""The requests of `Persons.begin`, and the order."""

CALLS = 46
"""An erasure has more of every second call: the certificate, the stores, the parts, the commit and the key have some."""

Seen = tuple[list[Answer], dict[EntityKey, bytes]]


@pytest.fixture
def ordered(tmp_path: Path) -> Path:
    """Return a data directory whose log ends with the order to erase Ada."""
    persons = Persons(tmp_path / "ordered")
    persons.begin()
    persons.order(ADA)
    persons.runtime.close()
    return persons.folder


def opened(data: Path) -> Inline:
    return Inline(data, 2, spec=PERSONS, name="persons")


def refused(data: Path, place: int) -> bool:
    """Process the log on a disk that is full at a place, and again when it is not; return whether it was used."""
    runtime, used = opened(data), []

    def full() -> None:
        used.append(place)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with at_call(place, full):
            runtime.advance(runtime.log.end())
    except (JournalUnavailable, StateUnavailable):  # a task opens the stores for rows of indexes
        assert used
    with suppress(Fenced):  # the outcome of the commit is unknown, so the driver ends
        runtime.advance(runtime.log.end())
    runtime.close()
    return bool(used)


def seeds_of(tree: KeyTree, subject: str) -> list[bytes]:
    """Return the seeds from which the key of a subject follows, from that of a file to that of the key alone."""
    path = tree._path(subject, 0)
    start = tree._start(path)
    assert start is not None
    seeds = [tree.seeds[path[:start]]]
    for digit in path[start:DEPTH]:
        seeds.append(_branch(seeds[-1], digit))
    return seeds


def files_with(folder: Path, secrets: list[bytes]) -> list[Path]:
    """Return the files that have one of the secrets, as bytes or as text."""
    texts = [form for each in secrets for form in (each, b64encode(each), each.hex().encode())]
    return [path for path, content in texts_in(folder) if any(text in content for text in texts)]


def finished(data: Path, seeds: list[bytes]) -> Seen:
    """Start the next driver, and return all replies and the state; Ada's key is destroyed, and Bob's is not."""
    runtime, app = opened(data), load_app(PERSONS)
    runtime.driver.recover(app).result()
    runtime.advance(runtime.log.end())
    answers, rows = answers_of(runtime.journal), state_of(runtime.journal)
    (made,) = Erasures(data).every(runtime.journal.identity, runtime.driver._epoch)
    runtime.close()
    assert (made.subject, made) == (ADA, made.sealed())
    assert Erasures(data).is_complete(made)
    assert files_with(data, seeds) == []
    app.use_keys(KeyFile(data / SUBJECT_KEYS).keys())
    assert app.entities["User"].decode("bob", rows[BOB])["name"] == "Babbage"
    return [each for each in answers if not each.request_id.startswith("erase~~")], rows


@pytest.mark.campaign
@pytest.mark.turns(
    1,
    *("runtime", "engine", "model", "journal", "files", "process", "state"),
    of="a driver killed at every step",
)
def test_erasure_is_whole_after_a_fault_at_each_call(
    ordered: Path,
    tmp_path: Path,
    seed: int,
    part_of: Callable[[Sequence[int], int], list[int]],
) -> None:
    """The person is gone, with the seeds of the key in all files; replies, other rows and other persons stay."""
    seeds = seeds_of(KeyFile(ordered / SUBJECT_KEYS).tree(), ADA)
    assert files_with(ordered, seeds) == [ordered / SUBJECT_KEYS]
    data = tmp_path / "whole"
    shutil.copytree(ordered, data)
    expected = finished(data, seeds)
    assert sorted(expected[1]) == ["Page/home", BOB]
    for call in chain(part_of(range(CALLS), 12), count(CALLS)):
        data = tmp_path / str(call)
        shutil.copytree(ordered, data)
        if (call + seed) % 2:
            is_behind = not refused(data, 2 * call)
        else:
            arguments = (data, PERSONS, 2, 100, RECORDS, f"{CALL}@{2 * call}", "persons")
            child = forked.run(PROGRAM, *arguments)
            assert child.returncode in (0, -signal.SIGKILL), child.stderr
            file = KeyFile(data / SUBJECT_KEYS)
            is_behind = file.tree().generation(ADA) == 1 and not file.has_remains
        assert finished(data, seeds) == expected, call
        if is_behind:
            break
        shutil.rmtree(data)
    assert call >= CALLS
    assert execute(["verify", PERSONS, "--data", str(data)]) == 0
