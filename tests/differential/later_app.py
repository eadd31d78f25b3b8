"""An application whose cascades append unusual records to the log."""

from datetime import timedelta

from penstock import (
    App,
    AskFailed,
    Emit,
    Entity,
    ask,
    call,
    emit,
    entity,
    flow,
    key,
    send,
    send_after,
    stream,
)

numbers = stream("numbers", int)
texts = stream("texts", str)
LARGE = "x" * (2 << 20)
"""A text that is larger than a request from outside may be."""


@entity
class Note(Entity):
    name: str = key()
    length: int = 0

    def write(self, text: str) -> int:
        self.length = len(text)
        return self.length

    def write_large(self) -> None:
        send_after(timedelta(microseconds=1), Note.write, self, LARGE)
        emit(texts, LARGE)

    def repeat(self, left: int) -> None:
        emit(texts, "short")
        if left:
            send(Note.repeat, self, left - 1)


class Asker:
    async def on_event(self, number: int, out: Emit[str]) -> None:
        try:
            out(str(await ask(Note.write, Note("asked"), "x" * number)))
        except AskFailed as error:
            out(str(error))


app = App(
    "later",
    Note,
    flow("asking", numbers).task(Asker).sink("answers"),
    call(texts, Note.write, lambda text: (Note("called"), text)),
)
