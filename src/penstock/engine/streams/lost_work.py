"""The consequences of a step that fails: questions fail, and events are set aside."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.engine.streams.cascade import Delivered
from penstock.engine.streams.waiting import Answer, Place, PortalQuestion, Waits
from penstock.errors import Deadlock
from penstock.model.request import Failure
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import Atom, Stream

_SHOWN_MAX: Final = 5


def give_up(waits: Waits, answers: Sequence[Answer]) -> list[PortalQuestion]:
    """Remove the handlers of a step that took answers and failed; return the questions that they would have replied to."""
    questions = [question for answer in answers if (question := waits.lose(answer)) is not None]
    waits.commit()
    return questions


def failed_answers(questions: Iterable[PortalQuestion], failure: Failure) -> list[Delivered]:
    """Return a step for each asking task that answers its questions with a failure."""
    answers: dict[tuple[str, str], list[Answer]] = {}
    for question in questions:
        asker = (question.workflow, question.task)
        answers.setdefault(asker, []).append(Answer(question.id, question.handler, None, failure))
    return [Delivered(workflow, task, tuple(given)) for (workflow, task), given in answers.items()]


def failed_atom(
    stream: Stream[FailedAtom], step: str, source: str, failure: Failure, events: Atom
) -> bytes:
    """Return the event that sets an atom aside."""
    text = f"{failure.kind}: {failure.message}"
    return stream.events.encode(FailedAtom(source, step, failure.code, text, events))


def deadlock(places: Sequence[Place]) -> Failure:
    """Return the failure of a question that would let handlers wait for each other for ever.

    Args:
        places: The tasks and keys of these handlers; the first one has asked.
    """
    names = [
        f"a handler of {task} with key {key}" if key else f"on_atom_complete of {task}"
        for task, key in places
    ]
    shown = (
        [*names[:_SHOWN_MAX], f"{len(names) - _SHOWN_MAX} more"]
        if len(names) > _SHOWN_MAX
        else names
    )
    waits = ", which waits for ".join([*shown, "the first one" if len(names) > 1 else "itself"])
    text = f"no handler could reply, because the request closes a cycle: {waits}; ask in one order, or without exclusive=True"
    return Failure(Deadlock.code, Deadlock.__name__, text)
