"""The requests to one bucket of an object store, through `obstore`, from any process, also from a fork.

The library has threads that it makes once in a process, and it cannot make them again. A fork has the library's memory without
these threads: a request of it would wait for ever, and take the answers of its parent from descriptors that both have. So
a fork of a process that has sent requests loads the library again, from a copy of its file. The loader takes another
file for another library, so its memory is new. The former one is never touched again, and no process has to plan its forks.

`obstore` repeats nothing here but the parts of large objects: its own repetitions would hide which answers were clear. Each error is one of three kinds,
`ConditionFailed`, `Refused` and any other `OSError`; the last is unclear. The texts are for people.
"""

import errno
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from penstock.errors import ConfigError
from penstock.files.store_answers import ConditionFailed, Refused

if TYPE_CHECKING:  # the library has no such names when it runs
    from collections.abc import Iterator

    from obstore import GetOptions, GetResult, PutMode
    from obstore.store import S3Store

ANSWER_S: Final = 5.0
"""How long one request may take."""

_PIECE: Final = 8 << 20
"""How many bytes of an object one request reads or writes."""

_PARTS_AT_ONCE: Final = 4


class _Patience(NamedTuple):
    """How often the library repeats a request, and how many times `ANSWER_S` each may take."""

    repeats: int = 0
    factor: int = 1


class Written(NamedTuple):
    """What a store says of an object that it has written.

    Attributes:
        tag: The tag of its bytes.
        version: Its version; None if the bucket has no versions.
    """

    tag: str | None
    version: str | None


_ONCE: Final = _Patience()
_PARTS: Final = _Patience(repeats=6, factor=12)

_LIBRARY: Final = "obstore"
_COMPILED: Final = "obstore._obstore"

_SAID: Final = re.compile(
    "<Code>(?P<code>[^<]*)</Code>(?:.*?<Message>(?P<text>[^<]*)</Message>)?", re.DOTALL
)
_STATUS: Final = re.compile(r"non-2xx status code: (\d+)")
_NO_KEY: Final = frozenset({"", "NoSuchKey", "NotFound"})
"""The codes of a store for a key that does not exist; an answer to HEAD has no code."""
_NO_BUCKET: Final = "NoSuchBucket"
_FORBIDDEN: Final = frozenset({"401", "403"})
_TOKEN_ADDRESSES: Final = ("169.254.169.254", "169.254.170.2")
"""Where the library asks for credentials if it has none."""

T = TypeVar("T")

Observer = Callable[[str, float, int, bool], object]
"""Takes a request that has ended: its verb (`put`, `get`, `head`, `list`, `delete`), seconds, bytes, whether it was answered."""

_observers: Final[dict[int, Observer]] = {}
"""The observer of this process, by its id: a fork has none."""


def observe_requests(observer: Observer) -> None:
    """Tell of each request that this process sends from now on; a request that finds no object was answered, too."""
    _observers[os.getpid()] = observer


class Client:
    """The requests to one bucket.

    Attributes:
        options: The settings that were given.

    Args:
        options: Settings of the S3 client of `obstore`; the others come from the environment (`AWS_…`).
    """

    def __init__(self, bucket: str, options: dict[str, str]) -> None:
        self._bucket = bucket
        self.options = options

    def put(
        self, key: str, data: bytes | memoryview | Path, mode: "PutMode" = "overwrite"
    ) -> Written:
        """Write an object.

        Args:
            data: Its bytes, or a file with them. If they are many, they are sent in parts, unless there is a condition.
        """
        if mode != "overwrite":
            return self._put_whole(key, data, mode)
        try:
            return self._put_anyway(key, data)
        except ConditionFailed as error:
            # There was no condition: the store does not like another request that it has at the same time.
            raise OSError(errno.EBUSY, error.strerror) from error

    def _put_whole(self, key: str, data: bytes | memoryview | Path, mode: "PutMode") -> Written:
        answer = self._asked(
            lambda library, store: library.put(store, key, data, mode=mode, use_multipart=False),
            "put",
            _bytes_of(data),
        )
        return Written(answer["e_tag"], answer["version"])

    def _put_anyway(self, key: str, data: bytes | memoryview | Path) -> Written:
        size = _bytes_of(data)
        if size <= _PIECE:
            return self._put_whole(key, data, "overwrite")
        # Nothing is to be seen before all parts are there, so here the library may repeat what fails.
        answer = self._asked(
            lambda library, store: library.put(
                store, key, data, chunk_size=_PIECE, max_concurrency=_PARTS_AT_ONCE
            ),
            "put",
            size,
            patience=_PARTS,
        )
        return Written(answer["e_tag"], answer["version"])

    def get(self, key: str) -> tuple[bytes, str | None]:
        """Return the bytes of an object and its tag."""
        facts, data = self._begun(key)
        return b"".join(self._pieces(key, facts)) if data is None else data, facts["e_tag"]

    def save(self, key: str, path: Path) -> None:
        """Write the bytes of an object into a file."""
        facts, data = self._begun(key)
        with path.open("wb") as file:
            file.writelines(self._pieces(key, facts) if data is None else [data])

    def _begun(self, key: str) -> tuple[Any, bytes | None]:
        """Return the facts of an object, and its bytes if they are few."""

        def ask(library: ModuleType, store: "S3Store") -> tuple[Any, bytes | None]:
            answer: GetResult = library.get(store, key)
            is_small = answer.meta["size"] <= _PIECE
            return answer.meta, bytes(answer.bytes()) if is_small else None

        return self._asked(ask, "get", lambda answer: len(answer[1] or b""))

    def _pieces(self, key: str, facts: Any) -> "Iterator[bytes]":
        """Yield the bytes of an object piece by piece: each request has its own time, and they have one version."""

        def ask(library: ModuleType, store: "S3Store", start: int, end: int) -> bytes:
            options: GetOptions = {"range": (start, end), "if_match": facts["e_tag"]}
            return bytes(library.get(store, key, options=options).bytes())

        for start in range(0, facts["size"], _PIECE):
            end = min(start + _PIECE, facts["size"])
            yield self._asked(partial(ask, start=start, end=end), "get", end - start)

    def head(self, key: str) -> Any:
        """Return the facts of an object: `size`, `e_tag`, `last_modified`; None if it does not exist."""
        try:
            return self._asked(lambda library, store: library.head(store, key), "head")
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix."""
        listing = self._asked(
            lambda library, store: library.list_with_delimiter(store, prefix), "list"
        )
        keys = (*listing["common_prefixes"], *(meta["path"] for meta in listing["objects"]))
        return [key.removeprefix(prefix).rstrip("/") for key in keys]

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        self._asked(lambda library, store: library.delete(store, key), "delete")

    def _asked(
        self,
        ask: "Callable[[ModuleType, S3Store], T]",
        verb: str,
        size: "int | Callable[[T], int]" = 0,
        *,
        patience: _Patience = _ONCE,
    ) -> T:
        """Send one request, or several at once, and tell the observer.

        Args:
            verb: What it does, for the observer.
            size: The bytes that it sends or wants; a function gets the answer.

        Raises:
            FileNotFoundError: The object does not exist.
            ConditionFailed, Refused, OSError: As the module says.
        """
        observer = _observers.get(os.getpid())
        if observer is None:
            return self._answered(ask, patience)
        began = time.monotonic()
        try:
            answer = self._answered(ask, patience)
        except OSError as error:
            is_answered = isinstance(error, (ConditionFailed, FileNotFoundError))
            observer(verb, time.monotonic() - began, 0, is_answered)
            raise
        took_s = time.monotonic() - began
        observer(verb, took_s, size(answer) if callable(size) else size, True)  # noqa: FBT003
        return answer

    def _answered(self, ask: "Callable[[ModuleType, S3Store], T]", patience: _Patience) -> T:
        """Send one request, or several at once, and translate errors; raises as `_asked`."""
        library = _library()
        exceptions = library.module.exceptions
        try:
            return ask(library.module, library.store_of(self._bucket, self.options, patience))
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise ConditionFailed(errno.EEXIST, self._text_of(error)) from error
        except FileNotFoundError as error:
            if _code_of(error) not in _NO_KEY:
                raise Refused(errno.ENOENT, self._text_of(error)) from error
            raise
        except (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.NotSupportedError,
        ) as error:
            raise Refused(errno.EACCES, self._text_of(error)) from error
        except exceptions.BaseError as error:
            is_refusal = _code_of(error) == _NO_BUCKET or _status_of(error) in _FORBIDDEN
            error_type = Refused if is_refusal else OSError
            raise error_type(errno.EIO, self._text_of(error)) from error

    def _text_of(self, error: Exception) -> str:
        """Return the reason of an error, and its remedy; the other lines of the library are its own state."""
        text, code, status = str(error).strip(), _code_of(error), _status_of(error)
        said = _SAID.search(text)
        answer = f"{said['code']}: {said['text'] or ''}".rstrip(": ") if said else ""
        is_missing = isinstance(error, FileNotFoundError)
        if code == _NO_BUCKET:
            answer = f"the bucket {self._bucket} does not exist; create it, or name another one"
        elif any(address in text for address in _TOKEN_ADDRESSES):
            answer = "there are no credentials; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        elif status in _FORBIDDEN or (is_missing and code not in _NO_KEY):
            answer = (
                f"the object store refuses the credentials ({answer or status}); check AWS_ACCESS_KEY_ID, "
                f"AWS_SECRET_ACCESS_KEY, AWS_REGION and the rights on the bucket {self._bucket}"
            )
        elif "HTTP error" in text:
            answer = "the object store does not answer; check AWS_ENDPOINT_URL and the network"
        return answer or (text.splitlines() or [type(error).__name__])[0]


def _bytes_of(data: bytes | memoryview | Path) -> int:
    return data.stat().st_size if isinstance(data, Path) else len(data)


class _Library:
    """`obstore` in one process, with a client for each bucket: a client keeps its connections."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.pid = os.getpid()
        self.file = Path(str(sys.modules[_COMPILED].__file__))
        self._stores: dict[tuple[object, ...], S3Store] = {}

    def store_of(self, bucket: str, options: dict[str, str], patience: _Patience) -> "S3Store":
        """Return the client of a bucket."""
        # The client reads these variables itself, when it is made.
        variables = os.environ.items()  # noqa: TID251 -- for the client
        given = [(name, text) for name, text in variables if name.startswith("AWS_")]
        key = (bucket, patience, ANSWER_S, *sorted(options.items()), *sorted(given))
        if (store := self._stores.get(key)) is None:
            try:
                made = self.module.store.S3Store(
                    bucket,
                    client_options={
                        "timeout": timedelta(seconds=patience.factor * ANSWER_S),
                        "connect_timeout": timedelta(seconds=ANSWER_S / 2),
                        # The endpoint says itself whether it has a certificate: a store in a private network may have none.
                        "allow_http": True,
                    },
                    retry_config={"max_retries": patience.repeats},
                    **options,
                )
            except self.module.exceptions.BaseError as error:
                first = str(error).strip().splitlines()[0]
                raise Refused(
                    errno.EINVAL, f"the settings AWS_… cannot be used: {first}"
                ) from error
            store = self._stores.setdefault(key, made)
        return store


_libraries: Final[list[_Library]] = []
"""The library of this process is the last one. Those of its ancestors stay: their ends would touch descriptors of the ancestors."""
_loading = threading.Lock()


def _library() -> _Library:
    if not _libraries or _libraries[-1].pid != os.getpid():
        with _loading:
            if not _libraries or _libraries[-1].pid != os.getpid():
                _libraries.append(_Library(_loaded_again() if _libraries else _loaded()))
    return _libraries[-1]


def _new_lock() -> None:
    global _loading
    _loading = threading.Lock()  # a thread that the fork lacks may have the former one


os.register_at_fork(after_in_child=_new_lock)


def _loaded() -> ModuleType:
    try:
        return importlib.import_module(_LIBRARY)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"data in an object store need {error.name}; install penstock[cluster]"
        ) from error


def _loaded_again() -> ModuleType:
    """Load the library from a copy of its file."""
    former = {
        name: module
        for name, module in sys.modules.items()
        if name == _LIBRARY or name.startswith(f"{_LIBRARY}.")
    }
    with _copied(_libraries[0].file) as copy:
        for name in former:
            del sys.modules[name]
        sys.meta_path.insert(0, finder := _Finder(copy))
        try:
            return importlib.import_module(_LIBRARY)
        except BaseException:
            sys.modules.update(former)
            raise
        finally:
            sys.meta_path.remove(finder)


@contextmanager
def _copied(path: Path) -> "Iterator[str]":
    """Give the path of a copy of a file, in memory: a folder for files on their way may forbid to run its files."""
    if not sys.platform.startswith("linux"):
        raise Refused(errno.ENOTSUP, "a fork can use an object store only on Linux")
    copy = os.memfd_create(path.name)
    try:
        with path.open("rb") as source:
            while os.sendfile(copy, source.fileno(), os.lseek(copy, 0, os.SEEK_CUR), 1 << 30):
                pass
        # The loader knows a library by its path, too, so the path has the process.
        yield f"/proc/{os.getpid()}/fd/{copy}"
    finally:
        os.close(copy)


class _Finder:
    """It finds the compiled part of the library in another file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return where a module is; None for all others."""
        if name != _COMPILED:
            return None
        loader = ExtensionFileLoader(name, self._path)
        return spec_from_file_location(name, self._path, loader=loader)


def _code_of(error: Exception) -> str:
    said = _SAID.search(str(error))
    return said["code"] if said else ""


def _status_of(error: Exception) -> str:
    told = _STATUS.search(str(error))
    return told[1] if told else ""
