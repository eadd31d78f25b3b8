"""The file of the subjects' keys: a destroyed key is in no file, also after a crash."""

import gc
import os
from itertools import count
from pathlib import Path

import pytest

from penstock.base.subject_keys import KeyTree
from penstock.errors import Corrupt, Erased
from penstock.files.key_file import KeyFile
from tests.call_faults import at_call
from tests.unit.process.key_services import SERVICE


@pytest.fixture(params=["", SERVICE], ids=["plain", "service"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> KeyFile:
    """Make a file that no key service encrypts, and one that a service does."""
    made = KeyFile(tmp_path / "subjects.keys")
    made.create(request.param)
    return made


def test_other_process_notices_a_destroyed_key(file: KeyFile) -> None:
    """Keys that were read before follow the file."""
    keys = KeyFile(file.path).keys()
    ada, bob = (keys.seal(name, b"data", b"row") for name in ("User/ada", "User/bob"))
    file.destroy("User/ada", 0)
    with pytest.raises(Erased):
        keys.unseal("User/ada", ada, b"row")
    assert keys.unseal("User/bob", bob, b"row") == b"data"
    file.destroy("User/ada", 0)
    assert keys.unseal("User/bob", bob, b"row") == b"data"


def test_former_file_is_overwritten(file: KeyFile) -> None:
    """The bytes of the former file are zeros, also for a process that has it open; the destroying process forgets them."""
    root = file.tree().seeds[""]
    with file.path.open("rb") as former:
        file.destroy("User/ada", 0)
        assert not former.read().strip(b"\x00")
    trees = [each for each in gc.get_objects() if type(each) is KeyTree]
    assert not [tree for tree in trees if root in tree.seeds.values()]
    assert list(file.path.parent.iterdir()) == [file.path]


@pytest.mark.parametrize("step", ["new", "linked", "renamed"])
def test_destruction_that_a_crash_has_stopped_is_completed(file: KeyFile, step: str) -> None:
    """After each step, a second call leaves one file, without the key and with all others."""
    keys = file.keys()
    ada, bob = (keys.seal(name, b"data", b"row") for name in ("User/ada", "User/bob"))
    new, old = (file.path.with_name(file.path.name + suffix) for suffix in (".new", ".old"))
    whole = file.path.read_bytes()
    other = KeyFile(file.path.with_name("other"))
    other.path.write_bytes(whole)
    other.destroy("User/ada", 0)
    new.write_bytes(other.path.read_bytes() if step != "new" else b"torn")
    other.path.unlink()
    if step != "new":
        os.link(file.path, old)
    if step == "renamed":
        new.replace(file.path)
    KeyFile(file.path).destroy("User/ada", 0)
    assert list(file.path.parent.iterdir()) == [file.path]
    keys = KeyFile(file.path).keys()
    assert keys.unseal("User/bob", bob, b"row") == b"data"
    with pytest.raises(Erased):
        keys.unseal("User/ada", ada, b"row")
    assert isinstance(file.tree(), KeyTree)


class CrashError(BaseException):
    """The process dies here."""


def crash() -> None:
    raise CrashError


def test_destruction_survives_a_crash_at_every_step(tmp_path: Path) -> None:
    """The next start finishes it: the key is gone, also from the former file, and nobody else is lost."""
    subjects = [f"User/{number}" for number in range(20)]
    for step in count():
        folder = tmp_path / str(step)
        folder.mkdir()
        file, witness = KeyFile(folder / "subjects.keys"), tmp_path / f"{step}.witness"
        file.create()
        keys = file.keys()
        sealed = {name: keys.seal(name, name.encode(), b"row") for name in subjects}
        os.link(file.path, witness)
        try:
            with at_call(step, crash):
                file.destroy(subjects[0], 0)
        except CrashError:
            pass
        else:
            break
        next_start = KeyFile(file.path)
        next_start.complete()
        next_start.destroy(subjects[0], 0)
        assert list(folder.iterdir()) == [file.path]
        assert not witness.read_bytes().strip(b"\x00")
        assert next_start.tree().generation(subjects[0]) == 1
        keys = next_start.keys()
        assert all(keys.unseal(name, sealed[name], b"row") for name in subjects[1:])
        with pytest.raises(Erased):
            keys.unseal(subjects[0], sealed[subjects[0]], b"row")
    assert step > 20, "each call has a step before it and one behind it"


def test_completion_overwrites_what_a_crash_has_left(file: KeyFile) -> None:
    """A crash after the new file has its name leaves the bytes of the destroyed key; no further key is destroyed."""
    old, witness = (file.path.with_name(file.path.name + end) for end in (".old", ".witness"))
    before = file.path.read_bytes()
    file.destroy("User/ada", 0)
    old.write_bytes(before)
    os.link(old, witness)
    assert KeyFile(file.path).has_remains
    KeyFile(file.path).complete()
    assert not old.exists()
    assert witness.read_bytes() == bytes(len(before))
    assert not file.has_remains


def test_damaged_file_is_refused(file: KeyFile) -> None:
    """A damaged or missing file is an error that names it, and no new keys are drawn."""
    content = bytearray(file.path.read_bytes())
    content[-20] ^= 1
    file.path.write_bytes(content)
    with pytest.raises(Corrupt, match=r"subjects\.keys"):
        KeyFile(file.path).tree()
    file.path.unlink()
    with pytest.raises(Corrupt, match="is missing"):
        KeyFile(file.path).tree()
