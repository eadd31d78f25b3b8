"""`MemoryState`: a partition's store in a dictionary of one process, for tests."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import final

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import StateUnavailable
from penstock.state.api import Change


@final
class MemoryReader:
    """The dictionary as of one epoch; the state never changes it again."""

    __slots__ = ("_states", "epoch", "get")

    def __init__(self, epoch: Epoch, states: Mapping[EntityKey, bytes]) -> None:
        self.epoch = epoch
        self.get = states.get
        self._states = states

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order."""
        yield from sorted(self._states.items())


@final
class MemoryState:
    """State in a dictionary, copied before a change when a reader has seen it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[EntityKey, bytes] = {}
        self._epoch = BEFORE_FIRST
        self._seen = False  # a reader may hold the present dictionary
        self._closed = False

    @property
    def epoch(self) -> Epoch:
        """The newest epoch applied; -1 when empty."""
        return self._epoch

    @contextmanager
    def reader(self) -> Iterator[MemoryReader]:
        """Open a stable view of the newest applied epoch."""
        with self._lock:
            self._check_open()
            self._seen = True
            reader = MemoryReader(self._epoch, self._states)
        yield reader

    def apply(self, epoch: Epoch, changes: Iterable[Change], expect: Epoch) -> Epoch:
        """Apply changes and record `epoch`, as the port says."""
        assert epoch > expect, "an epoch follows the one it builds on"
        newest = dict(changes)
        with self._lock:
            self._check_open()
            if self._epoch != expect:
                return self._epoch
            states = dict(self._states) if self._seen else self._states
            for key, state in newest.items():
                if state is None:
                    states.pop(key, None)
                else:
                    states[key] = state
            self._states, self._epoch, self._seen = states, epoch, False
            return epoch

    def load(
        self, epoch: Epoch, batches: Callable[[], Iterable[Iterable[Change]]], expect: Epoch
    ) -> None:
        """Replace everything, as the port says."""
        assert epoch > expect, "a snapshot leads forward"
        states = {key: state for batch in batches() for key, state in batch if state is not None}
        with self._lock:
            self._check_open()
            if self._epoch == expect:
                self._states, self._epoch, self._seen = states, epoch, False

    def clear(self) -> None:
        """Remove everything; the store is at epoch -1 afterwards."""
        with self._lock:
            self._check_open()
            self._states, self._epoch, self._seen = {}, BEFORE_FIRST, False

    def close(self) -> None:
        """Refuse all further use."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            message = "the state is closed"
            raise StateUnavailable(message)
