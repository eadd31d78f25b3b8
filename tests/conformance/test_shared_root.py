"""The port of the shared root: one suite that both adapters pass, the object store over a real server."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.files.local_root import LocalRoot
from penstock.files.shared_root import SharedRoot
from tests.object_store import StoreServer

RIVALS = 8
LONG_S = 60


@pytest.fixture(params=["local", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> SharedRoot:
    made: SharedRoot
    if request.param == "local":
        made = LocalRoot(tmp_path / "shared")
    else:
        server: StoreServer = request.getfixturevalue("store_server")
        made = server.root(tmp_path / "host", tmp_path.name)
    made.make_folders()
    return made


def test_created_name_has_its_bytes(root: SharedRoot) -> None:
    """A name that was created is there, with its bytes and its size."""
    assert root.create("a", b"first")
    assert (root.get("a"), root.size("a"), root.has("a")) == (b"first", 5, True)
    assert list(root.names()) == ["a"]


def test_name_of_others_stays(root: SharedRoot) -> None:
    """Whoever creates a name that has other bytes is told so, and changes nothing."""
    assert root.create("a", b"first")
    assert not root.create("a", b"other")
    assert root.get("a") == b"first"


def test_create_asked_again_says_the_same(root: SharedRoot) -> None:
    """The bytes decide who has created a name, so a caller that lost its answer asks again."""
    assert root.create("a", b"first")
    assert root.create("a", b"first")


def test_one_of_many_creators_wins(root: SharedRoot) -> None:
    """However many create a name at once, one of them is told that it did, and its bytes are there."""
    barrier = threading.Barrier(RIVALS)

    def rival(number: int) -> list[int]:
        won = []
        for name in range(5):
            barrier.wait(LONG_S)
            if root.create(str(name), b"%d" % number):
                won.append(name)
        return won

    with ThreadPoolExecutor(RIVALS) as pool:
        won = dict(enumerate(pool.map(rival, range(RIVALS))))
    assert sorted(name for names in won.values() for name in names) == list(range(5))
    for number, names in won.items():
        assert all(root.get(str(name)) == b"%d" % number for name in names)


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: root.get("a"),
        lambda root: root.folder("below").get("a"),
        lambda root: root.get("below/a"),
    ],
)
def test_missing_name_cannot_be_read(root: SharedRoot, ask: Callable[[SharedRoot], object]) -> None:
    """A name that does not exist has no bytes, and no size."""
    with pytest.raises(FileNotFoundError):
        ask(root)
    assert (root.size("a"), root.has("a"), root.age_s("a"), list(root.names())) == (
        None,
        False,
        0,
        [],
    )


def test_names_of_a_folder_are_its_own(root: SharedRoot) -> None:
    """A folder lists what is directly in it; a root of a folder has the same names."""
    root.make_folders("one", "one/deep", "two")
    for name in ("one/a", "one/deep/b", "two/c", "onea"):
        root.add(name, name.encode())
    assert sorted(root.names()) == ["one", "onea", "two"]
    assert sorted(root.names("one")) == ["a", "deep"]
    assert sorted(root.folder("one").names()) == ["a", "deep"]
    assert root.folder("one").folder("deep").get("b") == b"one/deep/b"
    assert list(root.names("three")) == []


def test_name_is_added_to_a_folder_that_an_earlier_version_did_not_make(root: SharedRoot) -> None:
    """A folder below the root appears with its first name."""
    root.add("new/a", memoryview(b"bytes").cast("b"))
    assert root.get("new/a") == b"bytes"


def test_replaced_name_has_the_new_bytes(root: SharedRoot) -> None:
    """A name can get other bytes, whether it exists or not."""
    root.replace("a", b"one")
    root.replace("a", b"two, longer")
    assert root.get("a") == b"two, longer"


def test_removed_name_is_free(root: SharedRoot) -> None:
    """A name that was removed is missing, may be removed again, and can be created."""
    root.create("a", b"one")
    root.remove("a")
    root.remove("a")
    assert not root.has("a")
    assert root.create("a", b"two")


def test_no_change_of_a_name_is_lost(root: SharedRoot) -> None:
    """Changes that several writers make at once all count."""

    def add(number: int) -> None:
        def edit(data: bytes | None) -> bytes | None:
            had = set((data or b"").split())
            return b" ".join(sorted(had | {b"%d" % number}))

        root.change("a", edit)

    with ThreadPoolExecutor(RIVALS) as pool:
        list(pool.map(add, range(2 * RIVALS)))
    assert sorted(map(int, root.get("a").split())) == list(range(2 * RIVALS))


def test_change_that_changes_nothing_writes_nothing(root: SharedRoot) -> None:
    """`edit` may see that nothing is to do; then also a missing name stays missing."""
    root.change("a", lambda data: None)
    assert not root.has("a")
    root.add("a", b"one")
    root.change("a", lambda data: None)
    assert root.get("a") == b"one"


def test_refused_change_leaves_the_name(root: SharedRoot) -> None:
    """An error of `edit` reaches the caller, and another change can follow."""

    def refuse(data: bytes | None) -> bytes:
        raise LookupError(data)

    root.add("a", b"one")
    with pytest.raises(LookupError, match="one"):
        root.change("a", refuse)
    root.change("a", lambda data: (data or b"") + b"!" if data == b"one" else None)
    assert root.get("a") == b"one!"


def test_written_file_becomes_the_name(root: SharedRoot) -> None:
    """What a block wrote into the file is under the name afterwards; a block that fails leaves the name."""
    with root.writing("a") as path:
        path.write_bytes(b"much")
    assert root.get("a") == b"much"

    def fail() -> None:
        with root.writing("a") as path:
            path.write_bytes(b"half")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert (root.get("a"), list(root.names())) == (b"much", ["a"])


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=2_000))
def test_any_bytes_come_back(root: SharedRoot, data: bytes) -> None:
    """Bytes are stored as they are, none included."""
    root.replace("a", data)
    assert root.get("a") == data


def test_change_in_a_folder_is_seen(root: SharedRoot) -> None:
    """The version of a folder is another one after a name was added or removed."""
    root.make_folders("one")
    before = root.version("one")
    root.add("one/a", b"")
    assert root.version("one") != before


def test_whole_bytes_are_never_set_aside(root: SharedRoot) -> None:
    """Only torn bytes are renamed."""
    root.add("a", b"whole")
    assert root.set_aside("a", lambda data: data != b"whole") is None
    assert root.set_aside("b", lambda data: True) is None
    assert root.get("a") == b"whole"


def test_one_process_at_a_time_is_alone(root: SharedRoot) -> None:
    """A folder in which somebody is alone keeps others out, until he leaves."""
    root.make_folders("one")
    with root.alone("one") as first, root.alone("one", timeout_s=0) as second:
        assert (first, second) == (True, False)
    with root.alone("one", timeout_s=0) as again:
        assert again


def test_age_is_counted_from_the_write(root: SharedRoot) -> None:
    """A name that was written just now is young; the clocks may differ by a little."""
    root.add("a", b"")
    assert -LONG_S < root.age_s("a") < LONG_S


def test_root_says_where_it_is(root: SharedRoot, tmp_path: Path) -> None:
    """The text of a root, and of a folder in it, is the path or the URL."""
    assert str(root) in {str(tmp_path / "shared"), f"s3://shared/{tmp_path.name}"}
    assert str(root.folder("one")) == f"{root}/one"


def test_torn_bytes_are_set_aside(tmp_path: Path) -> None:
    """A file that a power loss has torn gets another name, and its own is free."""
    root = LocalRoot(tmp_path)
    root.add("a.json", b"hal")
    aside = root.set_aside("a.json", lambda data: data == b"hal")
    assert aside is not None
    assert (root.get(aside), root.has("a.json")) == (b"hal", False)


def test_large_bytes_come_back(root: SharedRoot, tmp_path: Path) -> None:
    """Bytes that need several requests are whole, through memory and through files."""
    data = random.Random(1).randbytes(20 << 20)
    root.add("a", data)
    assert root.get("a") == data
    with root.writing("b") as path:
        path.write_bytes(data)
    with root.reading("b") as path:
        assert path.read_bytes() == data
    with root.scratch("c") as path:
        path.write_bytes(data[:3])
        root.take(path, "c")
    root.settle("")
    assert (root.get("c"), sorted(root.names())) == (data[:3], ["a", "b", "c"])
