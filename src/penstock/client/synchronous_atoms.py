# Written by scripts/twins from asynchronous_atoms.py: change that file, then run the script.
"""`Atoms`: the atoms of a stream, which a program takes in a loop."""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from penstock.client.atoms import Atom, FollowedStream, Start
from penstock.client.operation import Operation
from penstock.client.protocol import GatewayProtocol

T = TypeVar("T")


class Atoms(Generic[T]):
    """The atoms of a stream from a number on, each once and in order.

    A connection that breaks is made again, and the next atom follows. An error leaves the position as it is: the
    same loop may begin again, or another one with `start=atoms.next`.

    Attributes:
        next: The number of the next atom; `earliest` or `latest` until the first answer.
    """

    def __init__(
        self,
        stream: FollowedStream,
        start: Start,
        protocol: GatewayProtocol,
        run: Callable[[Operation[Any]], Any],
        *,
        follow: bool,
    ) -> None:
        self.next = start
        self._stream = stream
        self._protocol = protocol
        self._run = run
        self._follow = follow
        self._received: deque[Atom[T]] = deque()
        self._asked: Start = start

    def __repr__(self) -> str:
        return f"Atoms({self._stream.name!r}, next={self.next!r})"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Atom[T]:
        """Return the next atom; wait for it, unless only the atoms until now were asked for.

        Raises:
            Gone: Retention has removed the atom; `oldest` is the number of the oldest that is held.
            RequestError: The application has no such stream, or the number is beyond its end.
            OperationalError: The gateway could not answer.
        """
        while not self._received:
            operation = self._protocol.atoms(self._stream, self._asked, wait=self._follow)
            answer = self._run(operation)
            self._received.extend(answer.atoms)
            self._asked = answer.next
            if not answer.atoms:
                self.next = answer.next
                if not self._follow:
                    raise StopIteration
        atom = self._received.popleft()
        self.next = atom.number + 1
        return atom
