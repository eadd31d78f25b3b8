"""What runs on the hosts of a `World`: drivers, gateways that follow the journal, and their callers.

Everything that decides is the product's: `store_answers`, `Head` and `following`, `lease`. Here are only the loops around
the decisions, a bank as the application, and segments as plain texts.
"""

import errno
import json
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.base.decision import Now, Pause
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Fenced, JournalUnavailable
from penstock.files.shared_root import Found
from penstock.files.store_answers import Get, changing, creating, repeating
from penstock.journal import head
from penstock.journal.head import Head, following, forgettable
from penstock.process import lease
from penstock.process.lease import Lease, keeping, taking
from tests.simulation.world import (
    Append,
    Fetch,
    Host,
    Names,
    Process,
    Remove,
    Task,
    Until,
    World,
    Write,
)

KEEPS_S: Final = 60.0
"""A name stays for so long; here a day is a minute, and a jump of an hour 2.5 s."""
_PATIENCE_S: Final = 4.0
_CREATE_PATIENCE_S: Final = 30.0
_LOOK_S: Final = (0.05, 1.0)
_COMPACT_S: Final = 15.0
_NEWEST: Final = 1  # the epochs that stay out of the segments
_LEASE: Final = "lease"
_ACCOUNTS: Final = 4


@dataclass(slots=True)
class Bank:
    """The state: accounts, and the reply of each request id."""

    accounts: list[int] = field(default_factory=lambda: [100] * _ACCOUNTS)
    replies: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def answer(self, record: Any) -> Any:
        """Take a record, and return its reply; a transfer of too much has no effect."""
        request_id, body = record
        if request_id in self.replies:
            known, reply = self.replies[request_id]
            return reply if known == body else "conflict"
        source, target, amount = body
        reply = "refused"
        if self.accounts[source] >= amount:
            self.accounts[source] -= amount
            self.accounts[target] += amount
            reply = list(self.accounts)
        self.replies[request_id] = body, reply
        return reply


class HostJournal:
    """The journal as one process sees it."""

    def __init__(self, world: World) -> None:
        self.head = Head("bank", KEEPS_S)
        self._world = world
        self._spans: dict[str, tuple[Epoch, list[str]]] = {}

    def newest(self) -> Task:
        """Find the newest epoch."""
        return (yield from self.through(self.head.looking()))

    def commit(self, epoch: Epoch, text: str) -> Task:
        """Commit an epoch, until its outcome is known."""
        while True:
            try:
                newest = yield from self.through(self.head.beginning(epoch))
                decision = self.head.committing(epoch, text.encode(), newest)
                yield from self.through(decision)
            except (JournalUnavailable, OSError):
                yield Pause(0.5)
            else:
                self.head.committed(epoch)
                return

    def get(self, epoch: Epoch) -> Task:
        """Return the text of an epoch, from a segment as of the last list, or from its own name."""
        if (text := self._merged(epoch)) is None:
            data = (yield from self._asked(Get(_name(epoch)))).data
            if data is None:
                yield from self.refresh()
                text = self._merged(epoch)
                assert text is not None, f"epoch {epoch} is missing"
            else:
                text = data.decode()
        return text

    def follow(self, epoch: Epoch, timeout_s: float) -> Task:
        """Wait for an epoch, as `CommitLog.wait` does, and return the newest one that is known then."""
        is_next = yield from self.through(self.head.is_next(epoch))
        if not is_next and epoch <= (newest := (yield from self.newest())):
            return newest
        if (yield from self.through(following(epoch, timeout_s, _LOOK_S))):
            return (yield from self.through(self.head.finding(epoch)))
        return self.head.newest

    def refresh(self) -> Task:
        """List the segments."""
        for name in (yield from self._asked(Names("segment/"))):
            if name not in self._spans:
                data = (yield from self._asked(Get(name))).data
                if data is None:
                    raise FileNotFoundError(errno.ENOENT, "the store denies what it lists", name)
                texts = data.decode().split("\n")
                self._spans[name] = Epoch(int(name[8:])), texts
        return self.last

    @property
    def last(self) -> Epoch:
        """The newest epoch in a segment, as of the last list."""
        return max(
            (Epoch(first + len(texts) - 1) for first, texts in self._spans.values()),
            default=BEFORE_FIRST,
        )

    def compact(self, host: Host) -> Task:
        """Merge the older epochs, and remove the names that have been useless for long enough."""
        newest = yield from self.newest()
        first, end = Epoch((yield from self.refresh()) + 1), newest - _NEWEST
        if end - first >= 2:
            texts = yield from self._texts(first, end)
            name, data = f"segment/{first:06}", "\n".join(texts).encode()
            yield from creating(name, data, self._chance, _CREATE_PATIENCE_S, _PATIENCE_S)
            yield from self.refresh()
        written = yield from self._asked(Names("segment/"))
        now_s = (yield head.Clocks())[0]
        ages = [
            (Epoch(self._spans[name][0] + len(self._spans[name][1]) - 1), now_s - written[name])
            for name in sorted(self._spans)
            if name in written
        ]
        upto = forgettable(BEFORE_FIRST, ages, KEEPS_S)
        for name in (yield from self._asked(Names("epoch/"))):
            if int(name[6:]) <= upto:
                yield from self._asked(Remove(name))

    def _texts(self, first: int, last: int) -> Task:
        texts = {}
        for epoch in range(first, last + 1):
            texts[epoch] = yield from self.get(Epoch(epoch))
        return list(texts.values())

    def through(self, decision: Generator[Any, Any, Any]) -> Task:
        """Let a decision about the head ask the store."""
        return (yield from _through(decision, self._answer))

    def _answer(self, ask: Any) -> Task:
        answer: Any = None
        match ask:
            case head.Has(epoch):
                answer = (yield from self._asked(Get(_name(epoch)))).data is not None
            case head.Merged():
                answer = yield from self.refresh()
            case head.Create(epoch, text):
                name, draw = _name(epoch), self._chance
                answer = yield from creating(name, text, draw, _CREATE_PATIENCE_S, _PATIENCE_S)
            case head.List():
                names = yield from self._asked(Names("epoch/"))
                merged = yield from self.refresh()
                answer = max([merged, *(Epoch(int(name[6:])) for name in names)])
            case head.Settle():
                pass
            case _:
                answer = yield ask
        return answer

    def _asked(self, ask: Any) -> Task:
        return repeating(ask, self._chance, _PATIENCE_S)

    @property
    def _chance(self) -> Callable[[float, float], float]:
        return self._world.random.uniform

    def _merged(self, epoch: Epoch) -> str | None:
        for first, texts in self._spans.values():
            if first <= epoch < first + len(texts):
                return texts[epoch - first]
        return None


def _through(decision: Generator[Any, Any, Any], answer: Callable[[Any], Task]) -> Task:
    """Let tasks answer what a decision asks for; as `carried_out` does it at once."""
    try:
        ask = next(decision)
        while True:
            try:
                got = yield from answer(ask)
            except OSError as error:
                ask = decision.throw(error)
            else:
                ask = decision.send(got)
    except StopIteration as end:
        return end.value


def _name(epoch: Epoch) -> str:
    return f"epoch/{epoch:06}"


def driver(world: World, process: Process) -> Task:
    """Take the lease, and commit epochs until another driver does."""
    host, chance = process.host, world.random.uniform
    mine = Lease(run=process.name, host=f"host{host.number}", name=f"host{host.number}", pid=1)
    known: list[Found | None] = [None]

    def answer(ask: Any) -> Task:
        match ask:
            case lease.Read():
                return (yield from repeating(Get(_LEASE), chance, _PATIENCE_S)).data
            case lease.Prove():
                write: Any = Write(f"{_LEASE}-{host.number}", b"")
                return (yield from repeating(write, chance, _PATIENCE_S))
            case lease.Change():
                took: list[bool] = []

                def edit(present: bytes | None) -> bytes | None:
                    after = ask.edit(present)
                    took.append(after is not None)
                    return after

                known[0] = yield from changing(_LEASE, edit, chance, _PATIENCE_S, known[0])
                return took[-1]
            case _:
                return (yield ask)

    def keep() -> Task:
        yield from _through(keeping(mine), answer)
        world.tell(process.name, "has lost the lease")
        world.replace(process)

    yield from _through(taking(mine), answer)
    world.takeovers += 1
    world.tell(process.name, "has the lease")
    world.start(process, keep())
    world.start(process, _compactor(world, process))
    try:
        yield from _drive(world, process)
    except Fenced as error:
        world.tell(process.name, error)
        world.replace(process)


def _compactor(world: World, process: Process) -> Task:
    journal = HostJournal(world)
    while True:
        yield Pause(_COMPACT_S)
        try:
            yield from journal.compact(process.host)
        except OSError:
            continue


def _drive(world: World, process: Process) -> Task:
    journal, bank, epoch, end = HostJournal(world), Bank(), BEFORE_FIRST, 0
    while True:
        try:
            newest = yield from journal.newest()
            while epoch < newest:
                commit = json.loads((yield from journal.get(Epoch(epoch + 1))))
                _take(bank, world.log[end : commit["end"]], commit)
                epoch, end = Epoch(epoch + 1), commit["end"]
            break
        except OSError:
            yield Pause(0.5)
    while True:
        try:
            records = yield Fetch(end)
        except OSError:
            continue
        rows = [[record[0], bank.answer(record)] for record in records]
        epoch, end = Epoch(epoch + 1), end + len(records)
        commit = {"epoch": epoch, "end": end, "rows": rows, "by": process.name}
        text = json.dumps(commit | {"accounts": bank.accounts})
        try:
            yield from journal.commit(epoch, text)
        except Fenced:
            world.fenced.append((epoch, text))
            raise
        world.committed.append((epoch, text))


def _take(bank: Bank, records: list[Any], commit: dict[str, Any]) -> None:
    for record in records:
        bank.answer(record)


def gateway(world: World, process: Process) -> Task:
    """Follow the journal from its beginning, and know the replies."""
    journal, facts = HostJournal(world), process.host.facts
    facts["seen"], facts["replies"] = [], {}
    newest = BEFORE_FIRST
    while True:
        try:
            while (epoch := Epoch(len(facts["seen"]))) <= newest:
                text = yield from journal.get(epoch)
                facts["seen"].append(text)
                commit = json.loads(text)
                for request_id, reply in commit["rows"]:
                    facts["replies"].setdefault(request_id, []).append(reply)
                if sum(commit["accounts"]) != 100 * _ACCOUNTS:
                    world.failures.append(f"money is lost in epoch {epoch}: {text}")
            newest = yield from journal.follow(epoch, 5.0)
        except OSError:
            yield Pause(0.5)


@dataclass(slots=True)
class Call:
    """A call as its caller knows it."""

    request_id: str
    body: tuple[int, int, int]
    called_s: float
    positions: list[int] = field(default_factory=list)
    reply: Any = None
    again: Any = None
    replied_s: float = 0.0


def caller(world: World, process: Process, number: int, calls: int, pause_s: float) -> Task:
    """Make calls, one after the other, each until it has a reply, and some once more."""
    draw = world.random
    for count in range(calls):
        source, target = draw.sample(range(_ACCOUNTS), 2)
        called_s = yield Now()
        call = Call(f"{number}.{count}", (source, target, draw.randrange(60)), called_s)
        world.calls.append(call)
        call.reply = yield from _answered(world, process, call)
        call.replied_s = yield Now()
        if draw.random() < 0.25:
            call.again = yield from _answered(world, process, call)
        yield Pause(2 * pause_s * draw.random())
    world.callers -= 1


def _answered(world: World, process: Process, call: Call) -> Task:
    while True:
        process.host = world.random.choice(world.hosts)
        with suppress(OSError):
            call.positions.append((yield Append((call.request_id, call.body))))
            if (yield Until(partial(_is_answered, process.host, call), 15.0)):
                return process.host.facts["replies"][call.request_id][0]
        yield Pause(0.5)


def _is_answered(host: Host, call: Call) -> bool:
    return call.request_id in host.facts["replies"]
