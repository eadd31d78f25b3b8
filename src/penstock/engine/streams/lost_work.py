"""The consequences of a step that fails: questions fail, and events are set aside."""

from collections.abc import Iterable, Sequence

from penstock.engine.streams.cascade import Delivered
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.engine.streams.waits import Waits
from penstock.model.request import Failure
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import Atom, Stream


def give_up(waits: Waits, answers: Sequence[Answer]) -> tuple[list[PortalQuestion], Atom]:
    """Remove the handlers of a step that took answers and failed, and the work that waits behind them.

    Returns:
        The questions that they would have replied to, and those behind them; the answers, and the events behind the
        handlers.
    """
    events = [answer.data or b"" for answer in answers]
    questions: list[PortalQuestion] = []
    for answer in answers:
        waits.lose(answer, questions, events)
    waits.commit()
    return questions, tuple(events)


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
    """Return the event that sets an atom aside.

    Args:
        stream: The consumer's stream of failed atoms.
        step: The id of the step that failed.
        source: The stream of the atom.
        failure: The failure.
        events: The events of the atom.
    """
    text = f"{failure.kind}: {failure.message}"
    return stream.events.encode(FailedAtom(source, step, failure.code, text, events))
