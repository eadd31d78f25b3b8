"""An application whose requests carry little programs, which its methods perform.

A program is plain data, a list of steps such as `["add", 3]` or `["call", ["Alpha", 1], […]]`, so
every call graph, dependent access, undo and failure can be made at random. `twin` gives the same
programs their meaning without Penstock, `programs` makes them and writes them on one line.
"""

from copy import deepcopy as copy
from typing import Any, Final

from penstock import App, Entity, key, random, readonly, savepoint, transactional
from tests.differential.forms import Census, Delta

KEYS: Final = 2  # of each class, 0 and 1; `fresh` makes more

Who = tuple[str, int]
Program = list[Any]


class Fault(Exception):
    """The error that a program raises on purpose."""


class Machine:
    """The content of all entities: a number, a nested list, a link, and methods that run programs."""

    number: int = 0
    items: list[int] = []

    def run(self, program: list[Any], friend: "Alpha | None" = None) -> Any:
        frame = Frame(self, friend)
        frame.execute(program)
        return frame.value

    @readonly
    def look(self, program: list[Any]) -> Any:
        return Machine.run(self, program)


class Alpha(Machine, Entity):
    name: str = key()
    link: "Beta | None" = None


class Beta(Machine, Entity):
    name: str = key()
    link: "Gamma | None" = None


class Gamma(Machine, Entity):
    """The other style, with another type of key."""

    def __init__(self, code: int, number: int = 0) -> None:
        self.code: int = code
        self.number = number
        self.items = []
        self.link: Alpha | None = None

    def __key__(self) -> int:
        return self.code


@transactional
def main(program: list[Any], friend: Alpha | None = None) -> Any:
    """Run a program that belongs to no entity; where it says `me`, it means an Alpha."""
    frame = Frame(refer(("Alpha", 0)), friend)
    frame.execute(program)
    return frame.value


def refer(who: Who) -> Any:
    name, number = who
    match name:
        case "Alpha":
            return Alpha(f"a{number}")
        case "Beta":
            return Beta(f"b{number}")
        case _:
            return Gamma(number)


class Frame:
    """Runs one program on behalf of one entity; every method is a step, true if it returns."""

    def __init__(self, me: Any, friend: Any) -> None:
        self.me = me
        self.friend = friend
        self.value = 0
        self.held: list[int] = []

    def execute(self, program: Program) -> bool:
        return any(getattr(self, name)(*arguments) for name, *arguments in program)

    def get(self) -> None:
        self.value = self.me.number

    def set(self, number: int) -> None:
        self.me.number = number

    def add(self, number: int) -> None:
        self.me.number += number

    def mix(self) -> None:
        self.me.number = (self.me.number * 31 + self.value) % 1_009

    def push(self, number: int) -> None:
        self.me.items.append(number)

    def hold(self) -> None:
        self.held = self.me.items

    def extend(self, number: int) -> None:
        self.held.append(number)

    def share(self, who: Who) -> None:
        self.me.items = refer(who).items

    def count(self) -> None:
        self.value = len(self.me.items)

    def chance(self) -> None:
        self.value = random().randrange(1_000)

    def read(self, who: Who) -> None:
        self.value = refer(who).number

    def write(self, who: Who) -> None:
        refer(who).number = self.value

    def total(self, several: list[Who]) -> None:
        self.value = sum(refer(who).number for who in several)

    def has(self, who: Who) -> None:
        self.value = int(type(refer(who)).exists(refer(who)))

    def new(self, who: Who, number: int) -> None:
        key = refer(who)
        match who[0]:
            case "Gamma":
                type(key).create(key.code, number)
            case _:
                type(key).create(key.name, number=number)

    def patch(self, who: Who, values: dict[str, Any]) -> None:
        key: Any = refer(who)
        type(key).update_or_create(key.code if who[0] == "Gamma" else key.name, **copy(values))

    def fresh(self, number: int) -> None:
        kind: Any = Alpha  # mypy does not know what `@entity` adds
        made = kind.create(number=number)
        if isinstance(self.me, Gamma):
            self.me.link = made

    def drop(self, who: Who) -> None:
        refer(who).delete()

    def tie(self, number: int) -> None:
        following = {Alpha: "Beta", Beta: "Gamma", Gamma: "Alpha"}
        kind = next(kind for kind in following if isinstance(self.me, kind))
        self.me.link = refer((following[kind], number))

    def follow(self, program: Program) -> None:
        link = self.me.link
        if link is not None:
            self.value = link.run(program)

    def call(self, who: Who, program: Program) -> None:
        self.value = refer(who).run(program)

    def look(self, who: Who, program: Program) -> None:
        self.value = refer(who).look(program)

    def jump(self, name: str, program: Program) -> None:
        self.value = refer((name, self.value % KEYS)).run(program)

    def ask(self, program: Program) -> None:
        if self.friend is not None:
            self.value = self.friend.run(program)

    def fail(self) -> None:
        raise Fault(f"on purpose, at {self.value}")

    def end(self) -> bool:
        return True

    def attempt(self, program: Program, handler: Program) -> bool:
        try:
            return self.execute(program)
        except Exception:  # noqa: BLE001 -- as handlers of users do
            return self.execute(handler)

    def swallow(self, program: Program) -> bool:
        try:
            return self.execute(program)
        except BaseException:  # noqa: BLE001 -- the worst that handlers of users do
            return False

    def ensure(self, program: Program, last: Program) -> bool:
        try:
            return self.execute(program)
        finally:
            self.execute(last)

    def save(self, program: Program) -> bool:
        with savepoint():
            return self.execute(program)

    def loop(self, times: int, program: Program) -> bool:
        return any(self.execute(program) for _ in range(times))

    def when(self, program: Program, other: Program) -> bool:
        return self.execute(program if self.value % 2 else other)


app = App("machine", Alpha, Beta, Gamma, Delta, Census, main)
