"""`Kit`: an application in a test, with a clock that the test moves, and access to the state.

```python
kit = Kit(app)
kit.call.Item.create("i1", price=3)
assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 3, "stock": 0}
```

Every run of a test gives the same results: the clock moves only when the test moves it, and request
ids are counted, so `now`, `random` and `uuid` repeat. The kit runs on the local runtime, the reference
for every other runtime. The exception of a handler arrives as `Aborted` with the name of its class in
`kind`, as in every runtime; in a kit it is also the `__cause__`:

```python
with pytest.raises(Aborted, match="OutOfStock: i1") as caught:
    kit.call.Item("i1").subtract(5)
assert isinstance(caught.value.__cause__, OutOfStock)
```
"""

import asyncio
import inspect
import itertools
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Never, TypeVar, cast, overload

import msgspec

from penstock.base.ids import BEFORE_FIRST, PRINCIPAL_SEPARATOR, EntityKey, split_entity_key
from penstock.base.record import is_record, members_of
from penstock.base.schema import reference_type
from penstock.engine.effect_call import (
    arguments_of,
    effect_id_of,
    encoded_result,
    hidden_error,
    protected_value,
    settlement_of,
)
from penstock.engine.execute import Limits
from penstock.engine.failure import failure_of
from penstock.engine.rows import RowsFound, RowsWanted
from penstock.engine.streams.paused_flows import PausedFlow
from penstock.errors import (
    ConfigError,
    LimitExceeded,
    PenstockError,
    RequestError,
    Unencodable,
    UserError,
)
from penstock.model.application import App, unknown
from penstock.model.call import Call, Calling, entity_type_of, returns_of
from penstock.model.control import Erase
from penstock.model.effect import RUNNING, TRIES, Final, Outcome, RunningEffect, plan_of
from penstock.model.entity_page import LIMIT, EntityPage, page_filters
from penstock.model.entity_type import EntityType
from penstock.model.principal import Principal, encode_rights
from penstock.model.reply import Reply, caller_of
from penstock.model.request import RECORD_BYTES_MAX
from penstock.model.streams.generator import Generator
from penstock.model.streams.stream import Stream
from penstock.model.streams.task_type import KEY, ONLY_KEY
from penstock.model.waiting_effect import Settlement, WaitingEffect
from penstock.process.erasures import subject_named
from penstock.runtime.generators.run import GeneratorState
from penstock.runtime.local import erasing
from penstock.runtime.local.runtime import LATER_CASCADES, LATER_RECORDS, LocalRuntime
from penstock.state.digest import digest_of_mapping

E = TypeVar("E")
T = TypeVar("T")

GENERATED_ATOMS: typing.Final = 1_000
"""The most atoms that `generate` appends without a number."""

EFFECTS_MAX: typing.Final = 1_000
"""The most rounds of effects that one request may cause."""

START: typing.Final = datetime(2026, 1, 1, tzinfo=UTC)


_BEGINNING: typing.Final = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The clock behind `penstock.now()` in a test; it moves only when the test moves it.

    Attributes:
        now: The time, in UTC.
    """

    def __init__(self, now: datetime) -> None:
        """Start at a time.

        Raises:
            ConfigError: `now` has no time zone.
        """
        self.set(now)

    def set(self, now: datetime) -> None:
        """Move to a time, earlier or later.

        Raises:
            ConfigError: `now` has no time zone.
        """
        if now.tzinfo is None:
            raise ConfigError(f"{now} has no time zone; write datetime(…, tzinfo=UTC)")
        self.now = now.astimezone(UTC)

    def advance(self, by: timedelta) -> None:
        """Move by a duration; a negative duration moves back.

        Raises:
            ConfigError: `by` is no duration.
        """
        given: object = by
        if not isinstance(given, timedelta):
            raise ConfigError(
                f"the clock moves by a timedelta, not by {given!r}; write timedelta(seconds=…)"
            )
        self.now += by

    @property
    def time_us(self) -> int:
        """The time in microseconds since the Unix epoch."""
        return (self.now - _BEGINNING) // timedelta(microseconds=1)


class Kit:
    """An application without entities at first, which processes each request at once.

    Attributes:
        call: Performs calls: `kit.call(Item.add, Item("i1"), 5)` or `kit.call.Item("i1").add(5)`.
        clock: The clock behind `penstock.now()`.
    """

    def __init__(
        self,
        app: App,
        *others: App,
        limits: Limits | None = None,
        start: datetime = START,
        durable_waits: bool = False,
        effects: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        """Begin without entities.

        Args:
            effects: A fake for each effect that the test sends: `{charge: lambda order, cents: "ch_1"}`. It is called with the
                arguments of the effect, at once. If it raises an exception, it is called again, as often as the effect
                declares; `Final` ends that. It may return an `Outcome`, such as `Outcome("unknown")`.
            others: Further applications, which run together with it; see `penstock.registry`.
            limits: The limits of one transaction.
            start: The first time of the clock.
            durable_waits: Let each handler that waits for a reply run again from its start when the reply arrives, as
                `LocalRuntime` says.
            record_bytes_max: The most bytes of a request or an append, as the setting of this name.

        Raises:
            ConfigError: A fake is of an effect that the application lacks.
        """
        given: tuple[object, ...] = (app, *others)
        wrong = [each for each in given if not isinstance(each, App)]
        if wrong:
            raise ConfigError(
                f"a kit runs an App, and not {wrong[0]!r}: app = App('shop', Item, User), and then Kit(app)"
            )
        self.clock = VirtualClock(start)
        self.runtime = LocalRuntime(
            app,
            *others,
            limits=limits,
            clock=lambda: self.clock.time_us,
            durable_waits=durable_waits,
            record_bytes_max=record_bytes_max,
        )
        self._reply_bytes = (limits or Limits()).reply_bytes
        self._effects = {} if effects is None else dict(effects)
        for name in map(effect_name, self._effects):
            if name not in self.app.effects:
                raise ConfigError(
                    f"a kit takes fakes of effects that the App names; {unknown('effect', name, self.app.effects)}"
                )
        self.call = caller_of(self)
        self._chosen = itertools.count()

    def acting_as(self, principal: Principal | str) -> Calling:
        """Return a `call` whose requests a principal sends: `kit.acting_as("ada").Order("o1").cancel()`.

        The right of a class (`allows`) is asked, as in a gateway; scopes are not checked, because only a gateway does that.

        Args:
            principal: The caller that `penstock.principal()` returns. A text is its id, the name of an API key, or `@` and the subject of
                a token; it has no scopes and no claims then.
        """
        caller = _caller(principal)

        def perform(call: Call[Any]) -> Any:
            chosen = call.request_id or f"kit-{next(self._chosen)}"
            stored = f"{caller.id}{PRINCIPAL_SEPARATOR}{chosen}"
            reply = self.submit(replace(call, request_id=stored), encode_rights(caller))
            return reply.value(returns_of(self.runtime.app, call))

        return Calling(self.runtime.app, perform)

    @property
    def app(self) -> App:
        """The application that runs."""
        return self.runtime.app

    def submit(self, call: Call[Any], rights: bytes = b"") -> Reply:
        """Process a call as a request and return its recorded reply, also if the request failed.

        Args:
            rights: The rights of the caller that the request id names, as `acting_as` sets them.

        Raises:
            UserError: An effect was sent that has no fake, or whose fake returned an outcome that no effect has.
        """
        reply = self.runtime.submit(call, rights)
        if self.app.effects:
            self._call_effects()
        return reply

    def _call_effects(self) -> None:
        """Call the fakes of the effects that wait, and of those that their outcomes send."""
        for _ in range(EFFECTS_MAX):
            waiting = self.runtime.waiting_effects()
            if not waiting:
                return
            for each in waiting:
                self.runtime.settle_effect(self._outcome_of(each))
        raise UserError(
            f"after {EFFECTS_MAX} rounds of effects, still more wait; their outcomes send effects without end"
        )

    def _fake_of(self, waiting: WaitingEffect) -> Callable[..., Any]:
        name = waiting.function
        for given, fake in self._effects.items():
            if effect_name(given) == name:
                return fake
        raise UserError(
            f"effect {name} was sent by {waiting.group}, and this kit has no fake for it; add one: "
            f"Kit(app, effects={{{name}: lambda *arguments: …}})"
        )

    def _outcome_of(self, waiting: WaitingEffect) -> Settlement:
        name, fake = waiting.function, self._fake_of(waiting)
        identity = effect_id_of(b"kit", waiting)
        try:
            arguments, named = arguments_of(self.app, waiting)
        except PenstockError as error:
            return settlement_of(waiting, "failed", error=str(error), effect_id=identity)
        plan = plan_of(inspect.unwrap(self.app.effects[name].function, stop=plan_of))
        assert plan is not None, "the application has it as an effect"
        why, reason, tries = "", "", 0
        while tries < min(plan.tries, TRIES):
            tries += 1
            try:
                result = _called(fake, identity, arguments, named)
                given = result.value if isinstance(result, Outcome) and result.done else result
                if not isinstance(given, Outcome):
                    value = encoded_result(self.app.effects[name], given, self._reply_bytes)
                    value = protected_value(self.app, waiting, value)
                    return settlement_of(
                        waiting, "done", value=value, tries=tries, effect_id=identity
                    )
            except (Final, Unencodable, LimitExceeded) as failed:
                why, reason = _text_of(failed), type(failed).__name__
                break
            except Exception as failed:  # noqa: BLE001 -- a fake fails as the function may
                why, reason = _text_of(failed), type(failed).__name__
            else:
                if not (given.failed or given.unknown):
                    raise ConfigError(
                        f"the fake of effect {name} returned Outcome({given.status!r}); a status is 'done', 'failed' or 'unknown'"
                    )
                return settlement_of(
                    waiting, given.status, error=given.error, tries=tries, effect_id=identity
                )
        why, hidden = hidden_error(self.app, waiting, reason, why)
        facts = {} if hidden is None else {"value": hidden}
        return settlement_of(waiting, "failed", error=why, tries=tries, effect_id=identity, **facts)

    def append(self, stream: Stream[T] | str, events: Iterable[T], *, check: bool = True) -> Reply:
        """Publish events on a stream, as one atom, and run everything that they cause.

        Args:
            stream: The stream, or its name.
            check: Raise the first failure of a workflow. Without it, the failed atom is only in the stream of
                failed atoms of its workflow, as in every other runtime.

        Raises:
            RequestError: The stream does not exist or takes no appends, or an event does not fit its type.
            Aborted: A handler of a workflow failed; the exception itself is the `__cause__`.
            UserError: The workflows go on without end.
        """
        failures = self.runtime.failures
        failures.clear()
        reply = self.runtime.append(stream, events)
        self.settle()
        if check and failures:
            raise failures[0]
        return reply

    def generate(
        self,
        generator: Generator[Any] | str | None = None,
        *,
        atoms: int | None = None,
        check: bool = True,
    ) -> int:
        """Append atoms of generators, one after the other, and run everything that each one causes.

        Args:
            generator: The generator, or its name; without it, all generators, the atom that is due first before others.
            atoms: Append so many atoms, also before their time. Without it, append the atoms that are due by `clock`.
            check: Raise the first failure of a generator or a workflow. Without it, `generators` has the failures of
                generators, and the streams of failed atoms have those of workflows.

        Raises:
            RequestError: The application lacks the generator.
            UserError: A generator failed, with the exception of its source as `__cause__`; or there is no end of
                atoms that are due.
            Aborted: A handler of a workflow failed; the exception itself is the `__cause__`.
        """
        failures = self.runtime.failures
        failures.clear()
        name = generator.name if isinstance(generator, Generator) else generator
        count = 0
        while count != atoms and self.runtime.generate(name, early=atoms is not None):
            self.settle()
            count += 1
            if atoms is None and count == GENERATED_ATOMS:
                raise UserError(
                    f"after {count} atoms of generators, still more are due; name the number: kit.generate(atoms=5)"
                )
        if check and failures:
            raise failures[0]
        return count

    def generators(self) -> list[GeneratorState]:
        """Return the state of each generator: its atoms, its place in a file, and why it has failed."""
        return self.runtime.generators()

    def paused(self) -> dict[str, PausedFlow]:
        """Return the workflows that are paused, by name, each with its failure and the number of held steps."""
        return self.runtime.paused()

    def resume(self, flow: str, *, skip: bool = False, check: bool = True) -> None:
        """Let a paused workflow take the atoms that it holds, and run everything that they cause.

        Args:
            skip: Set the failed atom aside, and begin with the next one.
            check: Raise the first failure of a workflow.

        Raises:
            RequestError: The application lacks the workflow, or it is not paused.
            Aborted: A handler of a workflow failed; the exception itself is the `__cause__`.
        """
        failures = self.runtime.failures
        failures.clear()
        self.runtime.resume(flow, skip=skip)
        self.settle()
        if check and failures:
            raise failures[0]

    def settle(self) -> None:
        """Process the requests that are due since the clock has moved, and everything that they cause.

        Raises:
            UserError: Workflows or requests go on without end.
        """
        is_settled = self.runtime.settle()
        if self.app.effects:
            self._call_effects()
            is_settled = self.runtime.settle()
        if not is_settled:
            raise UserError(
                f"after {LATER_RECORDS} records, or {LATER_CASCADES} of them full of steps, there is still more to process; a cycle of workflows ends when an atom "
                "in it is empty, and a cycle of requests when one sends no other"
            )

    @overload
    def atoms(self, stream: Stream[T]) -> list[list[T]]: ...
    @overload
    def atoms(self, stream: str) -> list[list[Any]]: ...
    def atoms(self, stream: Stream[Any] | str) -> list[list[Any]]:
        """Return the atoms of a stream, in order; each is the list of its events, without those about erased persons.

        Raises:
            RequestError: The stream does not exist.
        """
        streams = self.runtime.app.topology.streams
        name = _name(stream)
        if name not in streams:
            raise RequestError(unknown("stream", name, streams))
        events = streams[name].events
        return [
            [events.decode(data) for data in events.without_erased(atom)]
            for atom in self.runtime.streams[name]
        ]

    def entity(self, name: str | type, key: object) -> dict[str, Any] | None:
        """Return the key and the attributes of an entity; None if it does not exist.

        A reference is shown as its key; other values are those that handlers see.

        Args:
            name: The class, or its name.
            key: The key, or a reference to the entity.

        Raises:
            RequestError: The class does not exist.
            Unencodable: The class cannot have such a key.
        """
        entity_type = self._entity_type(name)
        text = entity_type.text_of_either(key)
        data = self.runtime.state.get(EntityKey(entity_type.prefix + text))
        return None if data is None else _dump(entity_type, text, data)

    def get(self, entity: E, *key: Never, acting_as: Principal | str | None = None) -> E:
        """Return a copy of an entity, as `Client.get` does.

        Args:
            entity: A reference.
            acting_as: The caller, as in `acting_as`; None: the right of the class is not asked.

        Raises:
            NoSuchEntity: The entity does not exist.
            Forbidden: The caller may not use it.
            RequestError: It is no reference.
        """
        if key:
            name = getattr(entity, "__name__", entity)
            raise RequestError(
                f"a kit gets an entity by its reference: kit.get({name}({key[0]!r})); "
                f"kit.entity({name!r}, {key[0]!r}) returns the attributes as a dictionary"
            )
        entity_type = entity_type_of(self.app, entity)
        wanted = RowsWanted(entity_type.name, key=entity_type.text_of(entity))
        (made,) = self._copies(entity_type, self._rows(wanted, acting_as))
        return cast(E, made)

    def page(
        self,
        cls: type[E],
        *,
        where: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = LIMIT,
        acting_as: Principal | str | None = None,
    ) -> EntityPage[E]:
        """Return a page of copies of entities, as `Client.page` does.

        Args:
            where: The values that attributes must have.
            after: `after` of the page before.
            limit: The most entities, at most 1,000.
            acting_as: The caller, as in `acting_as`; None: the right of the class is not asked.

        Raises:
            RequestError: A filter does not fit the class, or `after` or `limit` is wrong.
        """
        entity_type = entity_type_of(self.app, cls)
        texts = page_filters(where or {}, limit)
        behind = entity_type.key_text(self.app.key_of(entity_type.name, after)) if after else ""
        wanted = RowsWanted(entity_type.name, after=behind, limit=limit, where=texts)
        rows = self._rows(wanted, acting_as)
        return EntityPage(self._copies(entity_type, rows), BEFORE_FIRST, rows.after)

    def _rows(self, wanted: RowsWanted, acting_as: Principal | str | None) -> RowsFound:
        if acting_as is None:
            return self.runtime.rows(wanted, "")
        caller = _caller(acting_as)
        wanted = msgspec.structs.replace(wanted, rights=encode_rights(caller))
        return self.runtime.rows(wanted, caller.id)

    @staticmethod
    def _copies(entity_type: EntityType, rows: RowsFound) -> list[Any]:
        return [
            entity_type.copy_of(entity_type.decode(entity_type.key_at(text), row))
            for text, row in rows.rows
        ]

    def erase(self, name: str | type, key: object) -> None:
        """Erase a person, as `penstock erase` does: delete the entity, and destroy the key of its data.

        Args:
            name: A personal class, or its name.
            key: The key, or a reference to the entity.

        Raises:
            RequestError: The class does not exist, or is not personal.
            Unencodable: The class cannot have such a key.
        """
        entity_type = self._entity_type(name)
        text = f"{entity_type.name}/{entity_type.text_of_either(key)}"
        subject = subject_named(self.runtime.app, text)
        app = self.runtime.app
        erasing.erase(app, self.runtime.state, Erase(subject, erasing.generation_of(app, subject)))

    def task(self, name: str, key: object = None) -> dict[str, Any]:
        """Return the attributes of a task for a key, also those that all keys share.

        Args:
            name: Workflow and task: `wordcount.Count`.
            key: The key; None for a task without keys.

        Raises:
            RequestError: The task does not exist.
            Unencodable: The task cannot have such a key.
        """
        topology = self.runtime.app.topology
        if name not in topology.tasks:
            raise RequestError(unknown("task", name, topology.tasks))
        task = topology.tasks[name]
        values: dict[str, Any] = {}
        rows = [(task.rows, task.key_text(key)), (task.shared, ONLY_KEY)]
        for entity_type, text in rows if task.shared else rows[:1]:
            assert entity_type is not None, "the shared row is left out if it does not exist"
            data = self.runtime.state.get(EntityKey(entity_type.prefix + text))
            values |= _dump(entity_type, text, data or topology.blank_rows[entity_type.name])
        return {attribute: value for attribute, value in values.items() if attribute != KEY}

    def entities(self, name: str | type) -> dict[Any, dict[str, Any]]:
        """Return all entities of a class by their keys.

        Args:
            name: The class, or its name.

        Raises:
            RequestError: The class does not exist.
        """
        entity_type = self._entity_type(name)
        rows = [(split_entity_key(key), data) for key, data in self.runtime.state.items()]
        return {
            entity_type.key_at(text): _dump(entity_type, text, data)
            for (class_name, text), data in sorted(rows)
            if class_name == entity_type.stored_name
        }

    def digest(self) -> str:
        """Return a hash of the whole state; equal states have equal hashes."""
        return digest_of_mapping(self.runtime.state)

    def _entity_type(self, given: str | type) -> EntityType:
        return self.app.entity(given) if isinstance(given, str) else entity_type_of(self.app, given)


def _caller(principal: Principal | str) -> Principal:
    """Return the caller that a test names.

    Raises:
        ConfigError: No gateway has a principal with this id.
    """
    caller = principal if isinstance(principal, Principal) else Principal(principal)
    if not caller.id or PRINCIPAL_SEPARATOR in caller.id:
        raise ConfigError(
            f"{caller.id!r} is not the id of a principal, which is the name of an API key, or @ and the subject of a token"
        )
    return caller


def effect_name(given: object) -> str:
    """Return the name of an effect, which a test gives as the function or as its name."""
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))


def _called(
    fake: Callable[..., Any], identity: str, arguments: Iterable[Any], named: Mapping[str, Any]
) -> Any:
    token = RUNNING.set(RunningEffect(identity, lambda name: f"<{name}>"))
    try:
        result = fake(*arguments, **named)
        return asyncio.run(result) if inspect.iscoroutine(result) else result
    finally:
        RUNNING.reset(token)


def _text_of(failed: Exception) -> str:
    failure = failure_of(failed, 0, 0)
    return f"{failure.kind}: {failure.message}"


def _name(stream: Stream[Any] | str) -> str:
    return stream.name if isinstance(stream, Stream) else stream


def _dump(entity_type: EntityType, text: str, data: bytes) -> dict[str, Any]:
    return {
        name: _plain(value)
        for name, value in entity_type.decode(entity_type.key_at(text), data).items()
    }


def _plain(value: Any) -> Any:
    """Replace references by their keys, at any depth."""
    reference = reference_type(type(value))
    if isinstance(reference, EntityType):
        return reference.key_at(reference.text_of(value))
    match value:
        case dict():
            return {_plain(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset() | deque():
            make = getattr(value, "_make", type(value))  # a `NamedTuple` has it
            return make(map(_plain, value))
        case _ if is_record(type(value)):
            return _plain_record(value)
        case _:
            return value


def _plain_record(value: Any) -> Any:
    """Return a copy of a dataclass or a `Struct` with keys in place of references."""
    shown = copy(value)
    for member in members_of(type(value)):
        plain = _plain(getattr(value, member.name))
        if isinstance(shown, msgspec.Struct):
            msgspec.structs.force_setattr(shown, member.name, plain)
        else:
            object.__setattr__(shown, member.name, plain)
    return shown
