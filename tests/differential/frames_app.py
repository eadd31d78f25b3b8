"""An application whose handlers of every kind publish how many frames they have before the recursion limit."""

from penstock import App, Emit, Entity, ask, call, emit, entity, flow, key, portal, send, stream

words = stream("words", str)
found = stream("found", tuple[str, int])
depths = portal("depths", str, int)


def count_frames(before: int = 0) -> int:
    """Return how many calls of this function fit below the caller."""
    try:
        return count_frames(before + 1)
    except RecursionError:
        return before


def counted(word: str) -> tuple[str, int]:
    """Return a word and the frames of a function in a flow."""
    return word, count_frames()


def key_of(word: str) -> str:
    """Return one of a few keys, after the frames of a function that returns a key were used."""
    return f"{word[:1]}{count_frames()}"


@entity
class Well(Entity):
    """Counts frames."""

    name: str = key()
    seen: int = 0

    def depth(self, word: str) -> int:
        """Publish the frames, and send for those of a sent request."""
        frames = count_frames()
        emit(found, ("depth", frames))
        send(Well.sent, self, word)
        return frames

    def sent(self, _word: str) -> int:
        """Return the frames of a sent request."""
        self.seen = count_frames()
        return self.seen


class Direct:
    """Publishes frames."""

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        """Publish the frames of a handler."""
        out((word, count_frames()))


class Asking:
    """Publishes the frames around two questions."""

    async def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        """Publish frames before, in and after the questions."""
        out(("before", count_frames()))
        out(("portal", await depths.ask(word)))
        out(("entity", await ask(Well.sent, Well(word), word)))
        out(("after", count_frames()))


class Replying:
    """Answers the portal."""

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        """Publish frames."""
        out((word, count_frames()))

    @depths.reply
    def reply(self, _word: str) -> int:
        """Return the frames of a handler of a portal."""
        return count_frames()


app = App(
    "frames",
    Well,
    flow("direct", words).key(key_of).task(Direct).sink("of-direct"),
    flow("mapped", words).map(counted).sink("of-mapped", tuple[str, int]),
    flow("asking", words).filter(lambda word: word < "m").task(Asking).sink("of-asking"),
    flow("replying", words).task(Replying).sink("of-replying"),
    call(found, Well.sent, lambda event: (Well("a"), event[0])),
)
