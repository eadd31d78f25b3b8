"""Portals: typed services of one task, which any other task can ask.

`await portal.ask(request)` suspends the handler. Requests that are sent in one step reach the replying task as
one atom, after that step has taken effect; its replies reach the asking task as one atom, too. So the replying
task is always asked between two atoms. Of a waiting handler, the requests and replies are kept, in order.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.base.constraint import without_constraints
from penstock.base.schema import complaints_of
from penstock.model.declaration import caller_place
from penstock.model.handler import check_marked
from penstock.model.streams.ask import Ask, running_step
from penstock.model.streams.event_type import EventType

Q = TypeVar("Q")
A = TypeVar("A")
M = TypeVar("M", bound=Callable[..., Any])


class Portal(Generic[Q, A]):
    """A service that a task offers: it takes requests of one type, and gives replies of one type.

    Attributes:
        name: The name, unique among the portals of an application.
        key: Returns the key under which the replying task takes a request; None for the key of the asker.
        where: `file:line` of the declaration.
        declared: The same types as they were declared, with their constraints.
        request_type, reply_type: Encode and decode; set when an application is built.
        origin: The portal itself, or the portal of another application that it stands for.
    """

    def __init__(
        self, name: str, request: Any, reply: Any, key: Callable[[Q], Any] | None, where: str
    ) -> None:
        self.name = name
        self.key = key
        self.where = where
        self.declared = (request, reply)
        self.annotations = (without_constraints(request), without_constraints(reply))
        self.request_type: EventType[Q] | None = None
        self.reply_type: EventType[A] | None = None
        self.origin: Portal[Any, Any] = self

    def __repr__(self) -> str:
        return f"<Portal {self.name}>"

    def bind(self, complaints: list[str]) -> None:
        """Fix the types, or add complaints."""
        request, reply = self.declared
        for what, annotation in (("request", request), ("reply", reply)):
            complaints += [
                f"{self.where}: portal {self.name}, {what}: {complaint}"
                for complaint in complaints_of(annotation)
            ]
        if not complaints:
            self.request_type = EventType(f"portal {self.name}", request, "requests")
            self.reply_type = EventType(f"portal {self.name}", reply, "replies")

    def ask(self, request: Q) -> Ask[A]:
        """Send a request to the portal; await the result to get the reply.

        The request is sent when the step of the running handler takes effect, awaited or not.

        Raises:
            UserError: No task of the application replies to the portal.
            Unencodable: The request does not fit its type.
            OutsideTransaction: No handler of a task runs.
        """
        ask: Ask[A] = running_step(f"ask portal {self.name}").ask(self, request)
        return ask

    def reply(self, method: M) -> M:
        """Mark the method of a task that replies: `def on_take(self, request: Take) -> bool`.

        The method may be `async` and ask other portals; it replies when it returns. It may take the
        task's `out` as its second argument.
        """
        check_marked(method, f"@{self.name}.reply", caller_place())
        method.__portal__ = self  # type: ignore[attr-defined]
        return method


def portal(
    name: str, request: type[Q], reply: type[A], *, key: Callable[[Q], Any] | None = None
) -> Portal[Q, A]:
    """Declare a service that a task offers to other tasks.

    Args:
        name: Letters, digits, `-` and `_`.
        request: The type of requests.
        reply: The type of replies.
        key: Returns the key of the replying task under which a request runs; without it, a request runs
            under the key of the asker.
    """
    return Portal(name, request, reply, key, caller_place())
