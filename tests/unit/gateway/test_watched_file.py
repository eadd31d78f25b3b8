"""A file that other processes replace: the content in use is the newest one that was read."""

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.errors import OperationalError
from penstock.files.local_root import LocalRoot
from penstock.gateway.auth import watched_file
from penstock.gateway.auth.watched_file import SILENT_S, WatchedFile


@pytest.fixture
def starved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedFile[bytes | None]:
    """A file in a store whose thread has had no turn for some seconds; its content has changed meanwhile."""
    monkeypatch.setattr(LocalRoot, "is_far", True)
    monkeypatch.setattr(watched_file, "_follow", lambda _look, _wanted: None)
    (tmp_path / "keys").write_bytes(b"first")
    watched = WatchedFile(LocalRoot(tmp_path), "keys", lambda content: content)
    (tmp_path / "keys").write_bytes(b"newest")
    watched._looked_s -= 2 * SILENT_S
    return watched


def test_two_looks_at_once_leave_the_newest_content(tmp_path: Path) -> None:
    """A look that has read a former content, and is slow, does not put it in the place of a newer one."""
    file = tmp_path / "keys"
    reads, goes_on = threading.Semaphore(0), threading.Event()

    def read(content: bytes | None) -> bytes | None:
        if content == b"slow":
            reads.release()
            assert goes_on.wait(60)
        return content

    file.write_bytes(b"first")
    watched = WatchedFile(LocalRoot(tmp_path), "keys", read)
    file.write_bytes(b"slow")
    slow = threading.Thread(target=watched._look)
    slow.start()
    assert reads.acquire(timeout=60)
    file.write_bytes(b"newest")
    other = threading.Thread(target=watched._look)
    other.start()
    other.join(0.2)  # it would end here without waiting for the slow one
    goes_on.set()
    slow.join()
    other.join()
    assert watched._value == b"newest"


def test_request_looks_itself_when_the_thread_had_no_turn(
    starved: WatchedFile[bytes | None],
) -> None:
    """On a busy host a thread may wait for seconds; the store answers, so no request is refused."""
    asyncio.run(starved.awake())
    assert starved.value() == b"newest"


def test_request_does_not_wait_for_a_store_that_does_not_answer(
    starved: WatchedFile[bytes | None],
) -> None:
    """The thread waits for the store already, so the request is refused at once."""
    with starved._looking:
        asyncio.run(starved.awake())
    with pytest.raises(OperationalError, match="does not answer"):
        starved.value()
