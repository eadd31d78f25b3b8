"""Data of persons in the work of cascades: parts of steps about erased persons are left out, and replies are encrypted.

An event, a question or an answer that refers to a person is encrypted (`model.streams.event_type`). After an erasure
it cannot be read. Then its consumer does not get it, and goes on with the rest of the step: an event is left out, a
question fails, an answer becomes a failure, and a handler that has taken such data ends.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from penstock.base.ids import EntityKey, split_entity_key
from penstock.engine.failure import DECIDED
from penstock.engine.streams.cascade import Delivered, Delivery, Inquiry
from penstock.engine.streams.waiting import Answer, Held, PortalQuestion, Waits
from penstock.errors import Erased
from penstock.model.application import App
from penstock.model.reply import decode_result
from penstock.model.request import Failure, decode_request, encode_request
from penstock.model.sealed_value import PERSONAL, REPLY, is_erased, open_value, seal_value
from penstock.model.streams.portal import Portal
from penstock.model.streams.topology import Topology
from penstock.model.streams.workflow_plan import WorkflowPlan

ERASED: Final = Failure(Erased.code, Erased.__name__, "it refers to a person who was erased")
"""The failure of a question, an answer or a handler whose data cannot be read any more."""


class PersonalWork:
    """Divides steps into what can be read, and what refers to erased persons.

    Attributes:
        met: Whether a step had data of an erased person. A rerun sets it to False before an epoch, because such an epoch
            cannot be computed again.
    """

    def __init__(self, app: App, waits: Waits) -> None:
        self._app = app
        self._waits = waits
        self.met = False

    def delivery(self, step: Delivery) -> Delivery:
        """Return a step without the events about erased persons."""
        if not self._app.is_personal:
            return step
        events = self._app.topology.streams[step.stream].events
        if not any(map(events.has_erased, step.atom)):
            return step
        self.met = True
        return replace(step, atom=tuple(data for data in step.atom if not self._is_erased(data)))

    def inquiry(self, step: Inquiry) -> tuple[Inquiry, list[PortalQuestion]]:
        """Return a step without the questions about erased persons, and these questions, which fail."""
        if not self._app.is_personal:
            return step, []
        kept: list[PortalQuestion] = []
        lost: list[PortalQuestion] = []
        for question in step.questions:
            (lost if self._is_erased(question.data) else kept).append(question)
        return (replace(step, questions=tuple(kept)) if lost else step), lost

    def delivered(self, step: Delivered) -> tuple[Delivered, list[Answer]]:
        """Return a step with failures in the place of answers about erased persons, and the answers that it cannot take.

        The second ones have handlers that have taken data of erased persons, so these handlers cannot go on.
        """
        if not self._app.is_personal:
            return step, []
        kept: list[Answer] = []
        lost: list[Answer] = []
        for answer in step.answers:
            if self._is_lost(answer):
                lost.append(answer)
            elif self._is_erased(answer.data):
                kept.append(replace(answer, data=None, failure=ERASED))
            else:
                kept.append(answer)
        return replace(step, answers=tuple(kept)), lost

    def readable(self, events: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the events that can be read."""
        return tuple(data for data in events if data and not self._is_erased(data))

    def protected(self, answer: Answer, subject: str | None) -> Answer:
        """Return the reply to a request as the handler that has sent the request keeps it.

        Args:
            subject: The person whom the request concerns; None for other requests.
        """
        keys = self._app.keys
        if subject is None or keys is None:
            return answer
        if answer.failure is not None:
            return replace(answer, failure=without_text(answer.failure))
        assert answer.data is not None, "a reply without a failure has data"
        return replace(answer, data=seal_value(keys, subject, answer.data, REPLY))

    def _is_lost(self, answer: Answer) -> bool:
        """Say whether the handler that waits for an answer has taken data that cannot be read any more."""
        handler = self._waits.handler(answer.handler)
        if handler is None:
            return False
        self._waits.recall(handler)
        answers = (turn.answer.data for turn in handler.turns if turn.answer is not None)
        if self.is_erased_item(handler.item) or any(map(self._is_erased, answers)):
            return True
        return any(
            self._is_erased_row(key, row)
            for turn in handler.turns
            for key, row in turn.rows.items()
        )

    def _is_erased_row(self, key: EntityKey, row: bytes | None) -> bool:
        name, text = split_entity_key(key)
        rows = self._app.topology.rows[name]
        if row is None or not (rows.personal and rows.is_erased(rows.key_at(text), row)):
            return False
        self.met = True
        return True

    def is_erased_item(self, item: Held | None) -> bool:
        """Say whether an event or a question refers to an erased person."""
        return self._is_erased(item.data if isinstance(item, PortalQuestion) else item)

    def _is_erased(self, data: bytes | None) -> bool:
        keys = self._app.keys
        if data is None or not self._app.is_personal or not is_erased(keys, data):
            return False
        self.met = True
        return True


def reply_decoder(app: App, returns: Any) -> Callable[[bytes], Any]:
    """Return a function that decodes the data of a reply, perhaps of `PersonalWork.protected`, to a type."""

    def decode(data: bytes) -> Any:
        readable = data if app.keys is None else open_value(app.keys, data, REPLY)
        return decode_result(readable, returns)

    return decode


def readable_question(portal: Portal[Any, Any], data: bytes) -> bytes:
    """Return the readable bytes of a request to a portal that a handler has just encoded.

    A handler that runs again is compared by them, because an erasure in between changes the encrypted bytes.
    """
    assert portal.request_type is not None, "an application was built with the portal"
    return portal.request_type.opened(data)


def readable_body(app: App, body: bytes) -> bytes:
    """Return the readable body of a request to an entity, likewise."""
    if not app.is_personal:
        return body
    return encode_request(app.opened(decode_request(body)))


def takes_persons(topology: Topology, plan: WorkflowPlan) -> bool:
    """Say whether the events, questions or answers of a workflow can refer to persons; any task can ask any portal."""
    types = [plan.workflow.source.events, plan.workflow.events]
    if any(task.rows.personal for task in plan.tasks):
        return True
    for task in plan.tasks:
        types += [each for each in (task.event, task.output) if each is not None]
    for portal in topology.portals.values():
        types += [each for each in (portal.request_type, portal.reply_type) if each is not None]
    return any(each.is_personal for each in types)


def recorded_failure(failure: Failure, *, is_personal: bool) -> Failure:
    """Return a failure as it is recorded: without the text of the user's exception if it may have data of a person."""
    return without_text(failure) if is_personal and failure.code not in DECIDED else failure


def without_text(failure: Failure) -> Failure:
    """Return a failure without its text, which may have data of a person."""
    return replace(failure, message=PERSONAL)
