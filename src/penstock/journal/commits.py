"""The commits of a journal: a Delta table's `_delta_log`, with one file for each epoch.

A commit and its parts are whole and on the disk before it has its name. Only one writer can create a name. No method
reports a commit whose name a power loss could still remove. Cost and memory do not grow with the
number of epochs, except that a process lists all names once, when it first needs the newest epoch
(0.1 s for 100,000 epochs).

Commits are created by `SharedRoot.create` and not by delta-rs, for two reasons. In a folder, delta-rs shows the
name before the bytes are durable (strace: it links, and never calls fsync), so that a reply could be
seen and then lost. And its cost grows with history: after 20,000 epochs a commit took 160 ms, after
100,000 over a second and 570 MB of memory, both right after a checkpoint; here it takes 1 ms
(`benchmarks/journal_commit.py`).
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import msgspec

from penstock.base.decision import Now, Pause, carried_out
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt, JournalUnavailable
from penstock.files.bell import Bell
from penstock.files.durable import done_together, storage
from penstock.files.lease_mark import UNTOLD_S
from penstock.files.shared_root import SharedRoot
from penstock.journal import action
from penstock.journal.action import CommitFlaw, CommitText
from penstock.journal.api import Commit
from penstock.journal.head import (
    Ask,
    Clocks,
    Create,
    Has,
    Head,
    List,
    Merged,
    Settle,
    following,
    pause_after,
)

logger = logging.getLogger(__name__)

LOG: Final = "_delta_log"
"""The folder of the commits."""

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")

_SAME_WAIT_S: Final = 0.05
"""A wait that begins so soon after another one for the same epoch goes on with it: followers wait in short pieces."""

_REST_SHARE: Final = 0.25
_REST_LEAST_S: Final = 0.25
_REST_MOST_S: Final = 5.0
"""The pause between two looks for the next epoch, where each is paid for and nothing tells of one: a share of the time without one."""


class _Wait(NamedTuple):
    """A wait for an epoch whose time was up.

    Attributes:
        since_s: When it, or the wait that it went on with, began, by the monotonic clock.
        ended_s: When it ended.
        heard: How often the bell had rung before the last look.
    """

    epoch: Epoch
    since_s: float
    ended_s: float
    heard: int


def version_in(name: str) -> int | None:
    """Return the table version in a commit's file name; None if the file is not a commit."""
    match = _COMMIT.fullmatch(name)
    return None if match is None else int(match[1])


class CommitLog:
    """The commit files of one table; safe for many threads and processes.

    Attributes:
        root: The folder of the commits.

    Args:
        table: The root of the table.
        merged: Returns the newest epoch in a segment; commits up to it may be removed here.
    """

    def __init__(
        self, table: SharedRoot, app: str, merged: Callable[[], Epoch] = lambda: BEFORE_FIRST
    ) -> None:
        self._table = table
        self.root = root = table.folder(LOG)
        self._app = app
        self._merged = merged
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._bell: Bell | None = None
        self._head = Head(app, root.keeps_s)
        self._looked_s = self._grown_s = time.monotonic()
        self._given_up = _Wait(BEFORE_FIRST, 0.0, 0.0, 0)
        # The epoch whose name was found last in a far root, and its bytes.
        self._seen: tuple[Epoch | None, bytes] = None, b""

    @property
    def known(self) -> Epoch:
        """The newest epoch that this object has seen; -1 before the first look."""
        return BEFORE_FIRST if self._head.newest is None else self._head.newest

    @property
    def rests_until_s(self) -> float:
        """Until when no look for the next epoch is due, by `time.monotonic`, if nothing else tells of it."""
        mark = self._table.lease_mark()
        if mark is not None and BEFORE_FIRST < mark.epoch <= self.known:
            return self._looked_s + UNTOLD_S  # the lease tells of a newer one sooner
        silent_s = self._looked_s - self._grown_s
        return self._looked_s + min(max(silent_s * _REST_SHARE, _REST_LEAST_S), _REST_MOST_S)

    def name_of(self, epoch: Epoch) -> str:
        """Return the name of an epoch's commit; epoch -1 is the creation of the table."""
        return _name(action.version_of(epoch))

    def newest(self) -> Epoch:
        """Return the newest committed epoch, -1 before the first; it is durable.

        Raises:
            Corrupt: A commit is missing or damaged.
        """
        self.check_open()
        with self._lock, storage("look for the newest commit"):
            before = self._head.newest
            newest = carried_out(self._head.looking(), self._answer)
            self._looked_s = time.monotonic()
            if newest != before:
                self._grown_s = self._looked_s
            return newest

    def put(self, commit: Commit) -> None:
        """Make a commit durable under its name, after its parts."""
        self.check_open()
        text = action.commit_text(commit, self._app)
        parts = [part.path for part in commit.parts]
        with storage(f"commit epoch {commit.epoch}"):
            with self._lock:
                newest = carried_out(self._head.beginning(commit.epoch), self._answer)
            carried_out(self._head.committing(commit.epoch, text, newest, parts), self._answer)
        self.committed(commit.epoch)

    def committed(self, epoch: Epoch) -> None:
        """Take note that an epoch is committed, and durable."""
        with self._lock:
            self._head.committed(epoch)
            self._looked_s = self._grown_s = time.monotonic()
        self.root.tell(self.name_of(epoch))

    def _answer(self, ask: Ask) -> object:  # noqa: C901 -- one case for each question
        """Carry out what a decision of `head` asks for; the most frequent questions come first."""
        answer: object = None
        match ask:
            case Has(epoch):
                answer = self._has(epoch)
            case Merged():
                answer = self._merged()
            case Now():
                answer = time.monotonic()
            case Create(epoch, text, parts):
                answer = self._table.create(f"{LOG}/{self.name_of(epoch)}", text, parts)
            case Clocks():
                answer = time.time_ns() / 1e9, time.monotonic()
            case Settle():
                self.root.settle("")
            case List():
                answer = self._scan()
            case Pause():
                raise AssertionError(
                    "only those who wait for an epoch pause, and `wait` answers them"
                )
        return answer

    def _has(self, epoch: Epoch) -> bool:
        self._looked_s = time.monotonic()
        name = self.name_of(epoch)
        if not self.root.is_far:
            return self.root.has(name)
        # With the bytes, which are few, the question costs the same. Whoever asks wants them next.
        try:
            self._seen = epoch, self.root.get(name)
        except FileNotFoundError:
            return False
        return True

    def get(self, epoch: Epoch) -> Commit:
        """Return the commit of an epoch that exists.

        Raises:
            Corrupt: It is missing or damaged.
        """
        text = self.text_of(epoch)
        try:
            commit = action.commit_of(text)
        except msgspec.MsgspecError as error:
            raise self._corrupt(epoch, "was not written by Penstock") from error
        if commit.epoch != epoch:
            raise self._corrupt(epoch, f"holds epoch {commit.epoch}")
        return commit

    def text_of(self, epoch: Epoch) -> CommitText:
        """Return the checked text of an epoch that exists.

        Raises:
            Corrupt: It is missing or damaged.
        """
        try:
            text = self._parse(epoch)
        except FileNotFoundError:
            raise self._corrupt(epoch, "is missing") from None
        if isinstance(text, CommitFlaw):
            raise self._corrupt(epoch, text)
        return text

    def wait(
        self, epoch: Epoch, timeout_ms: int, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """Block until an epoch is committed and durable; return False when the time is up.

        It looks for the name again and again, when the root's bell rings and after its pauses.

        Args:
            meanwhile: Done while a disk makes the name durable, if that takes a sync.
        """
        assert epoch >= 0, "epochs count from 0"
        assert timeout_ms >= 0, "time does not run backwards"
        self.check_open()
        with self._lock, storage(f"look for epoch {epoch}"):
            is_next = carried_out(self._head.is_next(epoch), self._answer)
        # Otherwise the first look below is enough: each may be paid for.
        if not (is_next and timeout_ms):
            if epoch <= self.newest():
                return True
            if not timeout_ms:
                return False
        bell = self._followed()
        since_s, rest_s, heard = self._resumed(epoch, bell)

        def answer(ask: Ask) -> object:
            nonlocal heard
            if type(ask) is Pause:
                bell.wait(heard, ask.seconds)
                self.check_open()
                return None
            if type(ask) is Has:
                heard = bell.rings  # a ring after the look begins ends the pause at once
            return self._answer(ask)

        waited_s = time.monotonic() - since_s
        with storage(f"wait for epoch {epoch}"):
            waiting = following(epoch, timeout_ms / 1000, bell.look_s, waited_s, rest_s)
            if not carried_out(waiting, answer):
                self._given_up = _Wait(epoch, since_s, time.monotonic(), heard)
                return False
            return epoch <= self._found(epoch, meanwhile)

    def _found(self, epoch: Epoch, meanwhile: Callable[[], object] | None) -> Epoch:
        """Take note that an epoch has its name, and return the newest epoch; it is durable."""
        newest: list[Epoch] = []

        def find() -> None:
            with self._lock:
                newest.append(carried_out(self._head.finding(epoch), self._answer))
                self._grown_s = time.monotonic()

        if meanwhile is None or self.root.is_far:
            find()
        else:
            done_together([meanwhile, find])
        return newest[0]

    def _resumed(self, epoch: Epoch, bell: Bell) -> tuple[float, float, int]:
        """Return since when a thread waits for an epoch, the time that is left of its last pause, and the rings that it has heard."""
        now_s, former = time.monotonic(), self._given_up
        if former.epoch != epoch or now_s - former.ended_s > _SAME_WAIT_S:
            return now_s, 0.0, bell.rings
        if bell.rings != former.heard:
            return former.since_s, 0.0, bell.rings
        pause_s = pause_after(self._looked_s - former.since_s, bell.look_s)
        return former.since_s, self._looked_s + pause_s - now_s, former.heard

    def _followed(self) -> Bell:
        """Return the bell of those who wait for epochs."""
        with self._lock:
            if self._bell is None:  # a process that only reads has none
                self._bell = self.root.bell()
            return self._bell

    def quiesced(self) -> AbstractContextManager[object]:
        """Return the lock that `Journal.quiesced` holds."""
        return self._lock

    def close(self) -> None:
        """Refuse all further use, and wake the waiting threads."""
        self._closed.set()
        if self._bell is not None:
            self._bell.ring()

    def check_open(self) -> None:
        """Raise `JournalUnavailable` after `close`."""
        if self._closed.is_set():
            raise JournalUnavailable("the journal is closed")

    def create(self, text: bytes) -> None:
        """Create version 0, unless another process was faster; it is durable in both cases.

        Raises:
            Corrupt: There are epochs, but version 0 is missing or damaged.
        """
        first = self.name_of(BEFORE_FIRST)
        # A checkpoint is as good as a commit: all commits that it stands for may be merged.
        if any(
            _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
            for name in self.root.names()
            if name != first
        ):
            raise self._corrupt(BEFORE_FIRST, "is missing or damaged")
        if self.root.has(first):
            self._set_aside(BEFORE_FIRST)
        if not self.root.create(first, text):
            path = f"{self.root}/{first}"
            logger.info("another process has created the journal", extra={"path": path})
            self.root.settle("")

    def _scan(self) -> Epoch:
        """List all names once, because a missing commit must not look like the end of history."""
        count, top, condensed, merged = self._listed()
        # A checkpoint is written from commits: all commits up to it existed and were whole.
        expected = range(merged + 1, max(top, condensed) + 1)
        if count < len(expected):
            # A listing may lack names that were added while it ran, so each is checked again.
            missing = [version for version in expected if not self.root.has(_name(version))]
            if missing:
                raise self._corrupt(Epoch(missing[0] - 1), "is missing")
        if top <= merged:
            return Epoch(merged - 1)
        newest = Epoch(top - 1)
        if newest < 0:
            return newest
        match self._parse(newest):
            case CommitFlaw.TORN if top > condensed and self.root.may_tear:
                self._set_aside(newest)
                return Epoch(newest - 1)
            case CommitFlaw() as flaw:
                raise self._corrupt(newest, flaw)
            case CommitText():
                return newest

    def _set_aside(self, epoch: Epoch) -> None:
        """Rename the newest commit if it is torn."""
        # It was never acknowledged, since `put` returns when it is durable, and the log still has its requests. So the
        # epoch runs again with the same outcome.
        name = self.name_of(epoch)
        aside = self.root.set_aside(name, lambda data: action.parse(data) is CommitFlaw.TORN)
        if aside is not None:
            logger.warning(
                "a torn commit of the journal is set aside; its epoch runs again",
                extra={"epoch": epoch, "path": f"{self.root}/{name}", "renamed_to": aside},
            )

    def _listed(self) -> tuple[int, int, int, int]:
        """Return the number of commits after the segments, and three versions, each -1 if missing.

        They are the newest versions of a commit, of a checkpoint, and of a segment.
        """
        versions: list[int] = []
        condensed = -1
        for name in self.root.names():
            if match := _COMMIT.fullmatch(name):
                versions.append(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(name):
                condensed = max(condensed, int(match[1]))
        merged = (
            self._merged()
        )  # after the names, because a commit is removed after a segment has it
        last = -1 if merged < 0 else action.version_of(merged)
        count = sum(version > last for version in versions)
        return count, max(versions, default=-1), condensed, last

    def _parse(self, epoch: Epoch) -> CommitText | CommitFlaw:
        seen, data = self._seen
        if seen == epoch:
            return action.parse(data)
        try:
            return action.parse(self.root.get(self.name_of(epoch)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise JournalUnavailable(f"cannot read epoch {epoch}: {error.strerror}") from error

    def _corrupt(self, epoch: Epoch, how: str) -> Corrupt:
        name = self.name_of(epoch)
        file = f"commit {name} of epoch {epoch}" if epoch >= 0 else f"{name}, the journal's start,"
        return Corrupt(f"{file} {how}; put the file back from a backup of {self.root}")


def _name(version: int) -> str:
    return f"{version:020}.json"
