"""The dumb twin of everything: the same programs over plain dictionaries, copied as a whole.

A transaction is a copy of the whole state that replaces it or is thrown away; a savepoint is a copy
of the contents of all rows and lists, which are put back in place. Nothing here knows Penstock, except for the two recipes that requests depend on: how keys
and random numbers are derived from a request id.
"""

import random
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from uuid import UUID

from tests.differential.machine import KEYS, Program, Who

Name = tuple[str, str | int]
"""Class and key."""

_FOLLOWING = {"Alpha": "Beta", "Beta": "Gamma", "Gamma": "Alpha"}


class Trouble(Exception):
    """An error that a handler may catch; carries the name of the exception's class."""


@dataclass
class Row:
    """An entity's attributes."""

    number: int = 0
    items: list[int] = field(default_factory=list)
    link: Name | None = None


def name_of(who: Who) -> Name:
    kind, number = who
    return kind, number if kind == "Gamma" else f"{kind[0].lower()}{number}"


def derived(purpose: bytes, text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16, person=purpose).digest()


class Twin:
    """All entities, and their changes by one request at a time."""

    def __init__(self) -> None:
        self.state: dict[Name, Row] = {}
        self.live: dict[Name, Row] = {}

    def begin(self, request_id: str) -> None:
        self.live = deepcopy(self.state)
        self.doomed = False
        self.request_id = request_id
        self.made = 0
        self.random = random.Random(derived(b"random", request_id))

    def commit(self) -> None:
        if self.doomed:
            raise Trouble("ReadonlyViolation")
        self.state = {name: deepcopy(row) for name, row in self.live.items()}

    def row(self, name: Name) -> Row:
        if name not in self.live:
            raise Trouble("NoSuchEntity")
        return self.live[name]

    def create(self, name: Name, number: int) -> None:
        if name in self.live:
            raise Trouble("AlreadyExists")
        self.live[name] = Row(number)

    def patch(self, name: Name, values: dict[str, Any]) -> None:
        vars(self.live.setdefault(name, Row())).update(deepcopy(values))

    def delete(self, name: Name) -> None:
        self.row(name)
        del self.live[name]

    def derived(self) -> Name:
        self.made += 1
        digest = derived(b"uuid", f"{self.made}/{self.request_id}")
        return "Alpha", str(UUID(bytes=digest, version=5))

    def run(self, name: Name, program: Program, friend: Name | None = None) -> int:
        self.row(name)
        return self.run_unloaded(name, program, friend)

    def run_unloaded(self, name: Name, program: Program, friend: Name | None) -> int:
        frame = Frame(self, name, friend)
        frame.execute(program)
        return frame.value

    def look(self, name: Name, program: Program) -> int:
        self.row(name)
        before = deepcopy(self.live)
        try:
            return self.run(name, program)
        finally:
            if self.live != before:
                self.doomed = True
                raise Trouble("ReadonlyViolation")


class Frame:
    """Runs one program on behalf of one entity; the methods are those of `machine.Frame`."""

    def __init__(self, twin: Twin, me: Name, friend: Name | None) -> None:
        self.twin = twin
        self.name = me
        self.friend = friend
        self.value = 0
        self.held: list[int] = []

    @property
    def me(self) -> Row:
        return self.twin.row(self.name)

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
        self.me.items = self.twin.row(name_of(who)).items

    def count(self) -> None:
        self.value = len(self.me.items)

    def chance(self) -> None:
        self.value = self.twin.random.randrange(1_000)

    def read(self, who: Who) -> None:
        self.value = self.twin.row(name_of(who)).number

    def write(self, who: Who) -> None:
        self.twin.row(name_of(who)).number = self.value

    def total(self, several: list[Who]) -> None:
        self.value = sum(self.twin.row(name_of(who)).number for who in several)

    def has(self, who: Who) -> None:
        self.value = int(name_of(who) in self.twin.live)

    def new(self, who: Who, number: int) -> None:
        self.twin.create(name_of(who), number)

    def patch(self, who: Who, values: dict[str, Any]) -> None:
        self.twin.patch(name_of(who), values)

    def fresh(self, number: int) -> None:
        name = self.twin.derived()
        self.twin.create(name, number)
        if self.name[0] == "Gamma":
            self.me.link = name

    def drop(self, who: Who) -> None:
        self.twin.delete(name_of(who))

    def tie(self, number: int) -> None:
        self.me.link = name_of((_FOLLOWING[self.name[0]], number))

    def follow(self, program: Program) -> None:
        link = self.me.link
        if link is not None:
            self.value = self.twin.run(link, program)

    def call(self, who: Who, program: Program) -> None:
        self.value = self.twin.run(name_of(who), program)

    def look(self, who: Who, program: Program) -> None:
        self.value = self.twin.look(name_of(who), program)

    def jump(self, name: str, program: Program) -> None:
        self.value = self.twin.run(name_of((name, self.value % KEYS)), program)

    def ask(self, program: Program) -> None:
        if self.friend is not None:
            self.value = self.twin.run(self.friend, program)

    def fail(self) -> None:
        raise Trouble("Fault")

    def end(self) -> bool:
        return True

    def attempt(self, program: Program, handler: Program) -> bool:
        try:
            return self.execute(program)
        except Trouble:
            return self.execute(handler)

    def swallow(self, program: Program) -> bool:
        try:
            return self.execute(program)
        except Trouble:
            return False

    def ensure(self, program: Program, last: Program) -> bool:
        try:
            return self.execute(program)
        finally:
            self.execute(last)

    def save(self, program: Program) -> bool:
        live = self.twin.live
        before = {name: (row, {**vars(row)}, [*row.items]) for name, row in live.items()}
        try:
            return self.execute(program)
        except Trouble:
            live.clear()
            for name, (row, attributes, items) in before.items():
                live[name] = row
                vars(row).update(attributes)
                row.items[:] = items
            raise

    def loop(self, times: int, program: Program) -> bool:
        return any(self.execute(program) for _ in range(times))

    def when(self, program: Program, other: Program) -> bool:
        return self.execute(program if self.value % 2 else other)
