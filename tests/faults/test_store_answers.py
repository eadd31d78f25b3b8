"""A name in an object store is created once, whatever the network makes of the answers."""

import errno
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.files import shared_root, store_client, store_root
from penstock.files.shared_root import UnclearOutcome
from penstock.files.store_root import StoreRoot
from tests.object_store import (
    CONFLICT,
    CUT_ANSWER,
    CUT_REQUEST,
    LOST_ANSWER,
    NOT_FOUND,
    SLOW_DOWN,
    Fault,
    HostileProxy,
    StoreServer,
)

LONG_S = 60.0


@pytest.fixture
def far(store_server: StoreServer, proxy: HostileProxy, tmp_path: Path) -> StoreRoot:
    """The same store behind the proxy."""
    return store_server.root(tmp_path / "far", tmp_path.name, proxy.port)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests be given up soon."""
    monkeypatch.setattr(store_root, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(store_root, "_CREATE_PATIENCE_S", 0.4)


@pytest.mark.parametrize(
    "faults",
    [
        [LOST_ANSWER],
        [CUT_ANSWER],
        [CUT_REQUEST],
        [CONFLICT],
        [SLOW_DOWN, SLOW_DOWN],
        [CUT_ANSWER, CONFLICT, SLOW_DOWN, LOST_ANSWER],
    ],
    ids=["500 after", "cut after", "cut before", "409", "503", "all"],
)
def test_create_is_ours_whatever_the_answer_was(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy, faults: list[Fault]
) -> None:
    """A create whose answers are lost or wrong is asked again, and says that the bytes are its own."""
    proxy.faults["PUT"] = deque(faults)
    assert far.create("a", b"ours")
    assert near.get("a") == b"ours"
    assert not near.create("a", b"theirs")


@pytest.mark.parametrize("fault", [LOST_ANSWER, CUT_REQUEST, CONFLICT, SLOW_DOWN])
def test_name_of_another_is_another_s_whatever_the_answer_was(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy, fault: Fault
) -> None:
    """A rival that was faster is found, however unclear the answers are."""
    assert near.create("a", b"theirs")
    proxy.faults["PUT"] = deque([fault])
    assert not far.create("a", b"ours")
    assert near.get("a") == b"theirs"


def test_rival_between_two_tries_wins(far: StoreRoot, near: StoreRoot, proxy: HostileProxy) -> None:
    """A request that was lost on its way is no claim: another may take the name before it is asked again."""
    faults = deque([CUT_REQUEST, Fault(first=lambda path: near.create("a", b"theirs"))])
    proxy.faults["PUT"] = faults
    assert not far.create("a", b"ours")
    assert near.get("a") == b"theirs"


def test_missing_name_after_an_unclear_answer_is_not_final(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy
) -> None:
    """A store may deny for a moment what it has written; only the same create, asked again, tells."""
    proxy.faults["PUT"] = deque([LOST_ANSWER])
    proxy.faults["GET"] = deque([NOT_FOUND, NOT_FOUND])
    assert far.create("a", b"ours")
    assert near.get("a") == b"ours"
    assert not proxy.faults["GET"], "the name was missing twice"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", [LOST_ANSWER, CUT_ANSWER, CUT_REQUEST, SLOW_DOWN])
def test_outcome_that_stays_unclear_is_said_to_be(
    far: StoreRoot, proxy: HostileProxy, fault: Fault
) -> None:
    """A caller who must give up learns that the name may exist; the same call finds out later."""
    proxy.always = {"PUT": fault, "GET": SLOW_DOWN}
    with pytest.raises(UnclearOutcome):
        far.create("a", b"ours")
    proxy.always = {}
    assert far.create("a", b"ours")


def test_late_write_of_a_create_that_was_given_up_does_no_harm(
    store_server: StoreServer,
    near: StoreRoot,
    proxy: HostileProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests that waited in the network meet the condition when they arrive."""
    waits: list[str] = []
    arrives = threading.Event()

    def wait(path: str) -> None:
        waits.append(path)
        arrives.wait(LONG_S)

    proxy.always = {"PUT": Fault(first=wait)}
    with monkeypatch.context() as hasty:
        hasty.setattr(store_root, "_PATIENCE_S", 0.2)
        hasty.setattr(store_root, "_CREATE_PATIENCE_S", 0.4)
        hasty.setattr(store_client, "ANSWER_S", 0.2)
        with pytest.raises(UnclearOutcome):
            store_server.root(tmp_path, tmp_path.name, proxy.port).create("a", b"ours")
    assert near.create("a", b"theirs")
    arrives.set()
    deadline = time.monotonic() + LONG_S
    while len(proxy.statuses) < len(waits):
        assert time.monotonic() < deadline, "a request is lost in the proxy"
        time.sleep(0.01)
    assert set(proxy.statuses) == {412}
    assert near.get("a") == b"theirs"


@pytest.mark.parametrize("fault", [LOST_ANSWER, CUT_ANSWER, CONFLICT])
def test_change_whose_answer_was_lost_is_made_once(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy, fault: Fault
) -> None:
    """A change is not applied to what it has made itself."""
    near.add("a", b"one")
    proxy.faults["PUT"] = deque([fault])
    far.change("a", lambda data: (data or b"") + b", two")
    assert near.get("a") == b"one, two"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "ask",
    [
        lambda root: root.get("a"),
        lambda root: root.has("a"),
        lambda root: list(root.names()),
        lambda root: root.add("b", b""),
        lambda root: root.remove("a"),
    ],
)
def test_store_that_is_away_is_an_error_that_says_so(
    far: StoreRoot, proxy: HostileProxy, ask: Callable[[StoreRoot], object]
) -> None:
    """Without an answer there is neither a name nor none; afterwards everything works again."""
    proxy.always = dict.fromkeys(("GET", "PUT", "HEAD", "DELETE", "POST"), SLOW_DOWN)
    with pytest.raises(OSError, match=r"\S") as raised:
        ask(far)
    assert not isinstance(raised.value, FileNotFoundError)
    assert raised.value.errno == errno.EIO
    proxy.always = {}
    far.add("a", b"")
    ask(far)


def test_killed_store_is_waited_for(store_server: StoreServer, near: StoreRoot) -> None:
    """A store that is killed and comes back has what it has answered for, and the call in between succeeds."""
    assert near.create("a", b"ours")
    store_server.kill()
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(near.create("b", b"ours")))
    asking.start()
    time.sleep(0.05)  # the call meets nobody at least once
    store_server.start()
    asking.join(LONG_S)
    assert answers == [True]
    assert (near.get("a"), near.get("b")) == (b"ours", b"ours")


@pytest.mark.usefixtures("hasty")
def test_patient_process_waits_for_a_store_that_is_away(
    far: StoreRoot, proxy: HostileProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver outlives what a gateway tells its callers of."""
    far.add("a", b"")
    proxy.always = {"GET": SLOW_DOWN}
    with pytest.raises(OSError, match="SlowDown"):
        far.get("a")
    proxy.always = {}
    monkeypatch.setattr(shared_root, "_is_patient", True)
    proxy.faults["GET"] = deque([SLOW_DOWN] * 8)  # longer than the others wait
    assert far.get("a") == b""
    assert not proxy.faults["GET"]


def test_store_with_conditions_is_accepted(near: StoreRoot) -> None:
    """A trial passes, and leaves nothing."""
    near.check_conditions()
    assert list(near.names()) == []


def test_store_whose_condition_lets_several_win_is_refused(
    store_server: StoreServer, far: StoreRoot, proxy: HostileProxy
) -> None:
    """Two drivers would both commit; the refusal says what is wrong, and what to use."""

    def forget(path: str) -> None:
        (store_server.folder.parent / path.partition("?")[0].lstrip("/")).unlink(missing_ok=True)

    proxy.always = {"PUT": Fault(first=forget)}
    with pytest.raises(
        ConfigError, match=r"cannot keep two drivers apart: of 8 writers .*Amazon S3"
    ):
        far.check_conditions()


@pytest.mark.parametrize(
    ("bucket", "wrong", "reason"),
    [
        ("shared", {"secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ("shared", {"access_key_id": "nobody"}, "No user exists"),
        ("missing", {}, "bucket missing does not exist; create it"),
    ],
)
def test_refusal_is_said_at_once(
    store_server: StoreServer, tmp_path: Path, bucket: str, wrong: dict[str, str], reason: str
) -> None:
    """Wrong credentials and a missing bucket are no unclear answers; the error has the store's own words."""
    root = StoreRoot(f"s3://{bucket}/x", tmp_path, store_server.access() | wrong)
    with pytest.raises(ConfigError, match=f"s3://{bucket}/x cannot be used.*{reason}"):
        root.check_conditions()


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///path", "gs://bucket/path", "s3://bucket/p?q=1", "bucket"]
)
def test_url_that_names_no_bucket_is_refused(tmp_path: Path, url: str) -> None:
    """Only `s3://BUCKET` and `s3://BUCKET/PREFIX` are places."""
    with pytest.raises(ConfigError, match="s3://BUCKET/PREFIX"):
        StoreRoot(url, tmp_path)


def test_change_of_what_is_known_is_one_request(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy
) -> None:
    """A name that nobody else has changed is asked for once; a change of another, or a lost answer, is found and kept."""

    def change(text: bytes, known: shared_root.Found | None) -> shared_root.Found | None:
        return far.change("a", lambda data: (data or b"") + text, known)

    known = change(b"one", None)
    proxy.asked.clear()
    known = change(b", two", known)
    assert [verb for verb, _ in proxy.asked] == ["PUT"]
    near.change("a", lambda data: (data or b"") + b", of another")
    known = change(b", three", known)
    proxy.faults["PUT"] = deque([LOST_ANSWER])
    known = change(b", four", known)
    proxy.faults["PUT"] = deque([CONFLICT])
    known = change(b", five", known)
    assert near.get("a") == b"one, two, of another, three, four, five"
    assert far.change("a", lambda data: data, known) == known, "nothing was to be changed"
    near.replace("a", b"other")
    kept = far.change("a", lambda data: None, known)
    assert kept is not None
    assert kept.data == b"other", "what is known is asked for before it is left as it is"


def test_parts_are_put_at_the_same_time(
    far: StoreRoot, near: StoreRoot, proxy: HostileProxy
) -> None:
    """Each waits until all of them are under way; the error of one is the error of all, after the others have ended."""
    together = threading.Barrier(3)
    proxy.faults["PUT"] = deque([Fault(first=lambda path: together.wait(LONG_S))] * 3)
    far.add_all({name: name.encode() for name in ("a", "b", "c")}, at_once=True)
    assert [near.get(name) for name in ("a", "b", "c")] == [b"a", b"b", b"c"]
    proxy.faults["PUT"] = deque([Fault(reaches=False, status=403, code="AccessDenied")])
    with pytest.raises(OSError, match="refuses the credentials"):
        far.add_all({"d": b"", "e": b""}, at_once=True)
    assert near.has("d") != near.has("e")


def test_store_is_used_in_forks_of_its_users(near: StoreRoot) -> None:
    """A child and its child have no threads of the client; they load it anew, and the parent goes on."""
    near.add("a", b"one")

    def change(text: bytes) -> None:
        near.change("a", lambda data: (data or b"") + text)

    def child() -> None:
        change(b", two")
        _in_child(lambda: change(b", three"))
        change(b", four")

    _in_child(child)
    assert near.get("a") == b"one, two, three, four"


def test_conditions_hold_in_a_fork(near: StoreRoot) -> None:
    """The errors of a library that was loaded again are understood: a taken name, a missing one, a refusal."""
    assert near.create("a", b"ours")

    def child() -> None:
        assert not near.create("a", b"theirs")
        assert near.create("a", b"ours")
        assert not near.has("b")
        with pytest.raises(FileNotFoundError):
            near.get("b")

    _in_child(child)


def test_large_files_travel_in_pieces(near: StoreRoot, tmp_path: Path) -> None:
    """A file that no single request carries in its time comes back whole; an empty one, too."""
    large = os.urandom(1 << 20) * 20 + b"end"
    for name, data in (("large", large), ("empty", b"")):
        with near.writing(name) as path:
            path.write_bytes(data)
        with near.reading(name) as path:
            assert path.read_bytes() == data


def _in_child(work: Callable[[], None]) -> None:
    """Do something in a fork; it must succeed, and end."""
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(int(LONG_S))
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0) == (pid, 0)
