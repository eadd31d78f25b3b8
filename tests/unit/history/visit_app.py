"""An application with events about persons, for tests of encryption and erasure."""

from dataclasses import dataclass

from penstock import App, Emit, Entity, ask, flow, key, portal, splitter, stream


class User(Entity, personal=True):
    """A person."""

    user_id: str = key()
    name: str

    def rename(self, name: str) -> str:
        """Change the name, and answer with the former name."""
        former, self.name = self.name, name
        return former


@dataclass(frozen=True)
class Visit:
    """A visit of a person."""

    user: User
    text: str


visits = stream("visits", Visit)
notes = stream("notes", str)
greeting = portal("greeting", Visit, Visit)


class Greeter:
    """Greets visitors: some after a wait, and some never."""

    greeted: int = 0

    async def on_event(self, visit: Visit, out: Emit[Visit]) -> None:
        """Publish a greeting, which has the former name if the visitor wants another one."""
        text = visit.text
        if "fail" in text:
            raise ValueError(text)
        if "rename" in text:
            text = f"{text}, formerly {await ask(User.rename, visit.user, text)}"
        if "other" in text:
            await ask(User.rename, User("ada"), text)
        if "portal" in text:
            text = (await greeting.ask(visit)).text
        self.greeted += 1
        out(Visit(visit.user, text))


class Porter:
    """Replies to greetings when the person has another name."""

    def on_event(self, note: str) -> None:
        """Nothing comes here."""

    @greeting.reply
    async def on_greeting(self, visit: Visit) -> Visit:
        """Reply with the former name."""
        return Visit(visit.user, await ask(User.rename, visit.user, visit.text))


class Careful:
    """Fails at some visits, and its workflow waits then."""

    def on_event(self, visit: Visit, out: Emit[Visit]) -> None:
        """Publish the visit."""
        if "fail" in visit.text:
            raise ValueError(visit.text)
        out(visit)


class Diary:
    """What each visitor has said; the answer to a `rename` comes later."""

    said: list[str] = []

    async def on_event(self, visit: Visit, out: Emit[Visit]) -> None:
        """Note the text, and publish how many there are."""
        if "rename" in visit.text:
            former = await ask(User.rename, visit.user, visit.text)
            self.said.append(former)
        self.said.append(visit.text)
        out(Visit(visit.user, f"{len(self.said)} {visit.text}"))


class Desk:
    """Serves visitors one after the other, also while it waits."""

    async def on_event(self, visit: Visit, out: Emit[Visit]) -> None:
        """Publish the visit, after its new name is known."""
        if "rename" in visit.text:
            await ask(User.rename, visit.user, visit.text)
        out(visit)


def visitor(visit: Visit) -> User:
    """Return the key of a diary."""
    return visit.user


diaries = flow("diaries", visits).key(visitor).task(Diary).sink("noted")
greeted = flow("greeted", visits).task(Greeter).sink("greetings")
served = flow("served", visits).task(Desk, exclusive=True).sink("guests")
careful = flow("careful", visits, on_failure="pause").task(Careful).sink("seen")
porter = flow("porter", notes).task(Porter).sink("nothing", str)
sides = splitter(
    "sides",
    visits,
    short=lambda visit: len(visit.text) < 10,
    long=lambda visit: "fail" not in visit.text or visit.text[999],
)
app = App("visitors", User, visits, notes, greeted, careful, porter, sides, diaries, served)
