"""The output of a workflow step: what it publishes and sends when it takes effect."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from penstock.engine.streams.cascade import LaterRecord
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.errors import LimitExceeded
from penstock.model.context import Transaction
from penstock.model.streams.packed_atom import packed_atom
from penstock.model.streams.stream import Atom


class StepOutput:
    """The events, questions, answers and requests of one step, whose bytes are limited together.

    Attributes:
        requests: The requests and the ends of times that its handlers have sent.
        questions: The requests to portals, by the name of the portal.
        answers: The replies that its handlers have given, by the workflow and the task of the asker.
        size_left: The bytes that it may still use; below zero the step fails.
    """

    __slots__ = (
        "_packed",
        "_pieces",
        "_size_max",
        "_txn",
        "answers",
        "events",
        "questions",
        "requests",
        "size_left",
    )

    def __init__(self, txn: Transaction, size_max: int) -> None:
        self._txn = txn
        self._size_max = size_max
        self.size_left = size_max
        self.events: list[bytes] | Atom = []
        self._pieces: list[bytes] = []
        self._packed = 0
        self.requests: list[LaterRecord] = []
        self.questions: dict[str, list[PortalQuestion]] = {}
        self.answers: dict[tuple[str, str], list[Answer]] = {}

    @property
    def size(self) -> int:
        """The bytes that it has used: at least those of its events, questions and answers."""
        return self._size_max - self.size_left

    def publish(self, events: Iterable[tuple[Any, bytes]]) -> None:
        """Publish the atom of the step: its keys and encoded events; raises as `count`."""
        if isinstance(events, list):
            self.events = [data for _, data in events]
            self.use(self.events)
            return
        self.events = published = []
        for _, data in events:  # functions of the user compute them now, perhaps without end
            self.count(data)
            published.append(data)

    def pack(self, events: bytes, count: int) -> bool:
        """Take several encoded events of the atom; return whether they are in the limit of bytes.

        Args:
            events: The events, without anything between them.
            count: Their number.
        """
        size_left = self.size_left - len(events) - count
        if size_left < 0:
            return False
        self._pieces.append(events)
        self.size_left = size_left
        self._packed += count
        return True

    def publish_packed(self) -> None:
        """Publish the packed events as the atom of the step; raises as `count`."""
        self.size_left -= sum(map(len, self._pieces)) + self._packed
        if self.size_left < 0:
            self.refuse()
        self.events = packed_atom(self._pieces, self._packed)

    def use(self, events: Sequence[bytes]) -> None:
        """Count the bytes of several events; raises as `count`."""
        self.size_left -= sum(map(len, events)) + len(events)
        if self.size_left < 0:
            self.refuse()

    def count(self, data: bytes) -> None:
        """Count the bytes of an event, a question, an answer or a request."""
        self.size_left -= len(data) + 1
        if self.size_left < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Let the step fail because it has reached its limit, even if the handler catches the error."""
        # A handler that catches the error would go on to publish, perhaps without end.
        error = LimitExceeded(
            f"the events of the step take more than output_bytes = {self._size_max} bytes"
        )
        self._txn.doom(error)
        raise error
