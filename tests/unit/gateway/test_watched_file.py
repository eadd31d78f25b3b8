"""A file that other processes replace: the content in use is the newest one that was read."""

import threading
from pathlib import Path

from penstock.files.local_root import LocalRoot
from penstock.gateway.auth.watched_file import WatchedFile


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
