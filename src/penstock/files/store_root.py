"""The shared root in an object store: one object for each name, through `obstore`.

`create` is the fence of the whole application. `store_answers` decides what an answer means, this module asks. Two
calls of `create` with different bytes never both return True, if the store honours the condition; `check_conditions` tries
that at the start.

`store_client` sends the requests, from forks, too.
"""

import random
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.base.decision import Now, Pause, carried_out
from penstock.errors import ConfigError
from penstock.files.bell import Bell
from penstock.files.durable import done_together
from penstock.files.layout import LEASE, PROBE
from penstock.files.lease_mark import LeaseMark, LeaseMarks, changed
from penstock.files.lock import locked_file
from penstock.files.shared_root import SCHEME, Found, is_patient, place_of
from penstock.files.store_answers import (
    Ask,
    Get,
    Put,
    Refused,
    Request,
    changing,
    creating,
    repeating,
)
from penstock.files.store_client import Client

if TYPE_CHECKING:
    from obstore import PutMode

_PATIENCE_S: Final = 4.0
"""How long a request is repeated; afterwards the caller tells its own caller, and tries again later."""
_LONG_PATIENCE_S: Final = 25.0
"""The same in a patient process."""
_CREATE_PATIENCE_S: Final = 30.0
"""The same for a create: after giving up, it is unknown whether the epoch exists."""

_LOOK_S: Final = (0.01, 0.25)
_TOLD_LOOK_S: Final = (0.05, 0.25)
_TRUSTED_S: Final = 2.0
"""The pauses between two looks on a host where another process tells of new names, and the time after which it seems to have ended."""

_KEEPS_S: Final = 86_400
_CLOCK_FRESH_S: Final = 600.0
"""How long the clock of the store is known after it was asked."""

_RIVALS: Final = 8
_TRIALS: Final = 3
_NO_VERSIONS: Final = (None, "", "null")
"""The versions of an object in a bucket without versioning."""

T = TypeVar("T")


class StoreRoot:
    """Names as the objects below a prefix of a bucket.

    Args:
        url: `s3://BUCKET` or `s3://BUCKET/PREFIX`.
        host: A folder of this host, for its locks and for files on their way.
        options: Settings of the S3 client of `obstore`; the others come from the environment (`AWS_…`).

    Raises:
        ConfigError: The URL names no bucket.
    """

    answers_prove = True
    may_tear = False
    keeps_s = _KEEPS_S
    is_far = True

    def __init__(self, url: str, host: Path, options: dict[str, str] | None = None) -> None:
        self._url = place_of(url)
        bucket, _, path = self._url.removeprefix(SCHEME).partition("/")
        self._host = host
        self._prefix = f"{path}/" if path else ""
        self._client = Client(bucket, options or {})
        self._top = self
        self._marks = LeaseMarks(host, self._url, self._read_lease)
        self._clock = _clocks.setdefault((bucket, *sorted((options or {}).items())), _Clock())

    def __str__(self) -> str:
        return self._url

    def bell(self) -> Bell:
        """Return a bell for the names of which a process of this host tells: a store does not."""
        bell = Bell(_LOOK_S, _TOLD_LOOK_S, _TRUSTED_S)
        with suppress(OSError):  # the pauses are enough
            self._told.mkdir(parents=True, exist_ok=True)
            bell.watch_names(self._told)
        return bell

    def tell(self, name: str) -> None:
        """Ring the bells of this host, as the port says."""
        with suppress(OSError):  # the pauses are enough
            (self._told / name).touch(mode=0o600, exist_ok=False)
            for former in self._told.iterdir():
                if former.name < name:
                    former.unlink()

    @property
    def _told(self) -> Path:
        """The folder of this host with an empty file for the newest name that was told."""
        return self._host / "told"

    def folder(self, name: str) -> "StoreRoot":
        """Return the root of a folder."""
        below = object.__new__(StoreRoot)
        below._url = f"{self._url}/{name}"
        below._host = self._host / name
        below._prefix = f"{self._prefix}{name}/"
        below._client = self._client
        below._clock = self._clock
        below._marks = self._marks
        below._top = self._top
        return below

    def make_folders(self, *names: str) -> None:
        """Do nothing: an object store has no folders."""

    def create(self, name: str, data: bytes, after: Collection[str] = ()) -> bool:
        """Create a name, or compare its bytes, as the port says."""
        decision = creating(name, data, random.uniform, _CREATE_PATIENCE_S, _patience_s())
        return carried_out(decision, self._answer)

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write a name that no other process writes."""
        self.replace(name, data)

    def add_all(self, files: Mapping[str, bytes | memoryview], *, at_once: bool) -> None:
        """Write names that no other process writes; a store answers when they are durable."""
        # They are the parts of a task, one for each kind of rows, so there are few of them.
        done_together([partial(self.add, name, data) for name, data in files.items()])

    def replace(self, name: str, data: bytes | memoryview) -> None:
        """Give a name other bytes."""
        plain = memoryview(data).cast("B")  # buffers of Arrow have signed bytes
        self._asked(lambda: self._client.put(self._key(name), plain))

    def change(
        self,
        name: str,
        edit: Callable[[bytes | None], bytes | None],
        known: Found | None = None,
    ) -> Found | None:
        """Replace the bytes of a name by those that `edit` returns, as the port says."""
        decision = changing(name, edit, random.uniform, _patience_s(), known)
        present: Found = carried_out(decision, self._answer)
        return present

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Give a file to write, as the port says."""
        with self._scratch_file() as path:
            yield path
            self.take(path, name)

    def scratch(self, near: str) -> AbstractContextManager[Path]:
        """Give a file for `take`."""
        return self._scratch_file()

    def take(self, path: Path, name: str) -> None:
        """Put a file of `scratch` under its name."""
        self._asked(lambda: self._client.put(self._key(name), path))

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """Give a file to read, as the port says."""
        with self._scratch_file() as path:
            self._asked(lambda: self._client.save(self._key(name), path))
            yield path

    @contextmanager
    def _scratch_file(self) -> Iterator[Path]:
        self._host.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._host, prefix="moving-") as folder:
            yield Path(folder) / "file"

    def get(self, name: str) -> bytes:
        """Return the bytes of a name."""
        return self._asked(lambda: self._client.get(self._key(name)))[0]

    def has(self, name: str) -> bool:
        """Say whether a name exists."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return the number of bytes of a name."""
        meta = self._asked(lambda: self._client.head(self._key(name)))
        return None if meta is None else meta["size"]

    def stamp(self, name: str) -> object:
        """Return a value that another writing changes."""
        meta = self._asked(lambda: self._client.head(self._key(name)))
        return None if meta is None else (meta["e_tag"], meta["last_modified"])

    def age_s(self, name: str) -> float:
        """Return the seconds since a name was written."""
        meta = self._asked(lambda: self._client.head(self._key(name)))
        written_s = None if meta is None else meta["last_modified"].timestamp()
        return 0.0 if written_s is None else max(0.0, self.now_s()[0] - written_s)

    def now_s(self) -> tuple[float, float]:
        """Return the times of this host and of the store, the earlier first."""
        own_s = time.time_ns() / 1e9
        store_s = self._clock.now_s(lambda: self._told_s(f"{PROBE}/{secrets.token_hex(8)}"))
        return min(own_s, store_s), max(own_s, store_s)

    def _told_s(self, name: str) -> float:
        """Return the time of the store. An answer tells no time, but a name tells when it was written."""
        try:
            self.replace(name, b"")
        except Refused:  # this process may only read, and so removes nothing
            return time.time_ns() / 1e9
        meta = self._asked(lambda: self._client.head(self._key(name)))
        self.remove(name)
        return time.time_ns() / 1e9 if meta is None else meta["last_modified"].timestamp()

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names directly in a folder."""
        prefix = self._key(f"{folder}/" if folder else "")
        yield from self._asked(lambda: self._client.names(prefix))

    def version(self, folder: str) -> object:
        """Return a value that is never returned again: nothing tells of changes, so the caller lists the folder."""
        return object()

    def settle(self, folder: str, *, with_bytes: bool = False) -> None:
        """Do nothing: each object that a store shows is durable."""

    def set_aside(self, name: str, is_torn: Callable[[bytes], bool]) -> str | None:
        """Return None: an object is whole."""

    def remove(self, name: str) -> None:
        """Remove a name."""
        with suppress(FileNotFoundError):
            self._asked(lambda: self._client.delete(self._key(name)))

    def lease_mark(self) -> LeaseMark | None:
        """Return the mark of the lease."""
        return self._marks.now()

    def note_lease(self, lease: bytes | None) -> None:
        """Let the processes of this host know the lease."""
        self._marks.note(lease)

    def count_change(self) -> None:
        """Count a change in the lease; if the store does not answer, others see the change after `lease_mark.UNTOLD_S`."""
        with suppress(OSError):
            self._top.change(LEASE, changed)

    def _read_lease(self) -> bytes | None:
        return self._found(LEASE).data

    def address(self) -> tuple[str, dict[str, str]]:
        """Return the URL, and the options of a client that commits by conditional puts."""
        return self._url, {"allow_http": "true", "conditional_put": "etag", **self._client.options}

    @contextmanager
    def alone(self, folder: str = "", timeout_s: float | None = None) -> Iterator[bool]:
        """Keep other processes of this host out of a folder."""
        place = self._host / folder
        place.mkdir(parents=True, exist_ok=True)
        with locked_file(place / "alone.lock", timeout_s) as held:
            yield held is not None

    def check_access(self) -> None:
        """Look whether the store answers to this process.

        Raises:
            ConfigError: It does not; the message has the reason and the remedy.
        """
        try:
            next(self.names(), None)
        except OSError as error:
            raise self._unusable(error) from error

    def check_forgets(self) -> None:
        """Look whether the bytes of a name that is replaced are gone.

        Raises:
            ConfigError: They stay, as a former version; or the store does not answer.
        """
        name = f"{PROBE}/{secrets.token_hex(8)}-version"
        try:
            version = self._asked(lambda: self._client.put(self._key(name), b"")).version
            self.remove(name)
        except OSError as error:
            raise self._unusable(error) from error
        if version not in _NO_VERSIONS:
            raise ConfigError(
                f"the object store {self} keeps former versions of objects, so keys of personal data would stay; use a bucket "
                "without versioning"
            )

    def check_conditions(self) -> None:
        """Try whether the store honours conditions: of several writers of one name, exactly one must win.

        Raises:
            ConfigError: It does not, it is out of reach, or it refuses this process.
        """
        try:
            for trial in range(_TRIALS):
                self._try_conditions(f"{PROBE}/{secrets.token_hex(8)}-{trial}")
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"the object store {self} cannot be used: {error.strerror}")

    def _try_conditions(self, name: str) -> None:
        bids = [f"{number}".encode() for number in range(_RIVALS)]
        with ThreadPoolExecutor(_RIVALS) as pool:
            try:
                won = list(pool.map(lambda bid: self.create(name, bid), bids))
                is_kept = not self.create(name, b"later")
                answer = self.get(name)
                winners = [bid for bid, has_won in zip(bids, won, strict=True) if has_won]
                if winners != [answer] or not is_kept:
                    raise self._unsafe(
                        f"of {_RIVALS} writers who each created one new name (If-None-Match: *) {len(winners)} were told "
                        "that they did"
                    )
                list(pool.map(lambda bid: self.change(name, partial(_with_bid, bid)), bids))
                if sorted(self.get(name)) != sorted(b"".join(bids)):
                    raise self._unsafe("changes of one name at the same time (If-Match) were lost")
            finally:
                with suppress(OSError):  # the first error says more
                    self.remove(name)

    def _unsafe(self, what: str) -> ConfigError:
        return ConfigError(
            f"the object store {self} cannot keep two drivers apart: {what}; use a store with conditional writes, "
            "such as Amazon S3"
        )

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _asked(self, ask: Callable[[], T]) -> T:
        """Repeat a request that may be repeated, for some seconds.

        Raises:
            ConditionFailed: The condition of the request does not hold.
            OSError: The store refuses, or does not answer.
        """
        decision = repeating(Request(ask), random.uniform, _patience_s())
        answer: T = carried_out(decision, self._answer)
        return answer

    def _answer(self, ask: Ask) -> object:
        """Carry out what a decision asks for."""
        match ask:
            case Now():
                return time.monotonic()
            case Pause(seconds):
                time.sleep(seconds)
                return None
            case Put(name, data, tag):
                mode: PutMode = "create" if tag is None else {"e_tag": tag}
                return self._client.put(self._key(name), data, mode).tag
            case Get(name):
                return self._found(name)
            case Request(send):
                return send()

    def _found(self, name: str) -> Found:
        try:
            return Found(*self._client.get(self._key(name)))
        except FileNotFoundError:
            return Found(None, None)


class _Clock:
    """The clock of a store, from what it has told last and the monotonic clock of this process."""

    def __init__(self) -> None:
        self._told: tuple[float, float] | None = None  # its time, and that of this process then

    def now_s(self, ask: Callable[[], float]) -> float:
        told = self._told
        if told is None or time.monotonic() - told[1] > _CLOCK_FRESH_S:
            told = self._told = ask(), time.monotonic()
        return told[0] + time.monotonic() - told[1]


_clocks: Final[dict[tuple[object, ...], _Clock]] = {}
"""The clock of the store of each bucket."""


def _with_bid(bid: bytes, data: bytes | None) -> bytes | None:
    return None if data is None or bid in data else data + bid


def _patience_s() -> float:
    return _LONG_PATIENCE_S if is_patient() else _PATIENCE_S
