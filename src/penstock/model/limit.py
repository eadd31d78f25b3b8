"""`@limit`: the most requests of a class, a method, a function or a stream that gateways admit; and the time of a handler.

A limit of requests is a text:

```
limit  =  bound [ "per principal" | "per key" ]
bound  =  N "/" ( "s" | "m" | "h" | "d" ) [ "burst" N ]        a rate
       |  N "at once"                                          requests under way
```

`"50/s"` admits 50 requests at once and then one every 20 ms; `burst` changes the first number. A
request is under way from its admission until its epoch is committed. A limit without `per` counts
all requests together, `per principal` counts those of each API key or token, and `per key` counts those
of each entity. A limit on a class counts the requests to all of its methods together. A limit on a stream counts its
appends, whatever the number of their events: `stream("lines", str, limits="50/s")`.

This module reads limits when the application is built. Gateways enforce them. Calls between entities,
tests and runtimes without a gateway have no such limits.

`@limit(time="60s")` is another limit: the processor time that a handler may use in place of the setting
`limits.time_ms`. Every runtime enforces it (`process.guard`).
"""

import inspect
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import RequestError
from penstock.model.declaration import caller_place, where_of
from penstock.model.entity_type import EntityType
from penstock.model.handler import check_marked
from penstock.model.signature import Signature
from penstock.model.streams.stream import NAME as STREAM_NAME
from penstock.model.streams.stream import Stream
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.model.time_limit import TIME_LIMITS, time_of

EVERYTHING: Final = "*"
"""The target of a limit or a pause that covers every method and function."""

STREAMS: Final = "streams/"
"""The target of a limit or a pause that covers the appends to a stream begins with this text: `streams/lines`."""

PRINCIPAL: Final = "principal"
KEY: Final = "key"

FORMS: Final = "write N/s, N/m, N/h, N/d (with burst N) or N at once, then per principal or per key"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TEXT: Final = re.compile(
    r"(?:(?P<count>\d{1,9})/(?P<unit>[smhd])(?: burst (?P<burst>\d{1,9}))?"
    r"|(?P<at_once>\d{1,9}) at once)(?: per (?P<per>principal|key))?"
)
_TARGET: Final = re.compile(rf"\*|{STREAMS}{STREAM_NAME.pattern}|[^\W\d]\w*(\.[^\W\d]\w*)?")

M = TypeVar("M", bound=Callable[..., Any])


class Limit(msgspec.Struct, frozen=True):
    """A limit; either `rate_per_s` or `at_once` is 0.

    Attributes:
        rate_per_s: The requests per second in the long run.
        burst: The requests that are admitted at once after a rest.
        at_once: The requests that may be under way.
        per: `principal` or `key` if each of them has its own count; empty for a common count.
        target: `*`, a class, `Class.method`, a function, or `streams/NAME`.
    """

    text: str
    rate_per_s: float
    burst: int
    at_once: int
    per: str
    target: str = EVERYTHING

    def __str__(self) -> str:
        return f"{self.target} {self.text}"


def limit(*limits: str, time: str | timedelta | None = None) -> Callable[[M], M]:
    """Limit the requests that gateways admit for a class, a method or a function, or the time of a handler.

    ```python
    @limit("500/s", "20/s per principal")
    class Order(Entity):
        @limit("1 at once per key")
        def checkout(self) -> None: ...
    ```

    A request beyond a limit gets 429 with `Retry-After`, and `penstock.Client` sends it again. The module
    describes the grammar. `App` reports mistakes in limits.

    ```python
    @limit(time="60s")
    def rebuild(self) -> None: ...
    ```

    A handler may use `limits.time_ms` of processor time, because all other requests wait for it; a method that needs
    more says so. The time counts for the request of this method, with all calls that it makes; in a task, for a step of its
    workflow.

    Args:
        limits: The limits; all of them apply.
        time: The processor time of a method of an entity, a function, a handler of a task, or of all handlers of a class:
            "500ms", "60s", "2m", "1h", or a timedelta. The bound by the clock, `limits.wall_ms`, grows by as much.
    """
    where = caller_place()

    def mark(member: M) -> M:
        if not isinstance(member, type):
            check_marked(member, "@limit", where)
        marks = vars(member)
        if limits or time is None:
            member.__limits__ = (*limits, *marks.get("__limits__", ()))  # type: ignore[attr-defined]
        if time is not None:
            setattr(member, TIME_LIMITS, (time, *marks.get(TIME_LIMITS, ())))
        return member

    return mark


def parse_limit(text: str) -> Limit:
    """Return the limit that a text describes; its target is `*`.

    Raises:
        RequestError: The text is not a limit; the message lists the forms.
    """
    match = _TEXT.fullmatch(" ".join(text.split()))
    if match is None:
        raise RequestError(f"{text!r} is not a limit; {FORMS}")
    words = match.groupdict()
    count, burst, at_once = (int(words[name] or 0) for name in ("count", "burst", "at_once"))
    per = words["per"] or ""
    if words["at_once"] is None:
        seconds = _SECONDS[words["unit"]]
        made = Limit(match[0], count / seconds, burst if words["burst"] else count, 0, per)
    else:
        made = Limit(match[0], 0.0, 0, at_once, per)
    if made.burst < 1 and made.at_once < 1:
        raise RequestError(f"{text!r} admits no request; to admit none, use `penstock flow pause`")
    return made


def declare_times(
    entities: Mapping[str, EntityType],
    functions: Mapping[str, Signature],
    workflows: Mapping[str, WorkflowPlan],
    complaints: list[str],
) -> dict[str, int]:
    """Give each method and function the time that it declares, or that its class declares.

    Returns:
        The milliseconds of each method, function and workflow that declares a time, by its name.
    """
    for name, entity_type in entities.items():
        of_class = time_of(entity_type.cls, entity_type.where, name, complaints)
        methods = [*entity_type.methods.values()]
        if entity_type.creation is not None:
            methods.append(entity_type.creation)
        for signature in methods:
            own = time_of(signature.function, signature.where, signature.name, complaints)
            signature.time_ms = of_class if own is None else own
        for signature in entity_type.creations.values():
            assert entity_type.creation is not None, "it is one of them"
            signature.time_ms = entity_type.creation.time_ms
        for member, function in inspect.getmembers_static(entity_type.cls, inspect.isfunction):
            is_root = member in entity_type.methods or member == "__init__"
            if not is_root and TIME_LIMITS in vars(function):
                complaints.append(
                    f"{where_of(function)}: {name}.{member}: @limit(time=…) has no effect here, because no request calls "
                    "it; declare it at the methods that call it"
                )
    for signature in functions.values():
        signature.time_ms = time_of(signature.function, signature.where, signature.name, complaints)
    methods = [each for entity in entities.values() for each in entity.methods.values()]
    methods += [each.creation for each in entities.values() if each.creation is not None]
    declared = {each.name: each.time_ms for each in (*methods, *functions.values())}
    declared |= {f"workflow {name}": plan.time_ms for name, plan in workflows.items()}
    return {name: time_ms for name, time_ms in declared.items() if time_ms is not None}


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Return the limits of a setting: targets with their limits, separated by commas.

    Raises:
        RequestError: A part of the text is not a target with a limit.
    """
    limits = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        target, _, bound = part.partition(" ")
        if not _TARGET.fullmatch(target):
            raise RequestError(
                f"{part!r} begins with no target; write *, a class, Class.method, a function or "
                f"{STREAMS}NAME first"
            )
        limits.append(msgspec.structs.replace(parse_limit(bound), target=target))
    return tuple(limits)


def limits_of(
    entities: Mapping[str, EntityType],
    functions: Mapping[str, Signature],
    streams: Mapping[str, Stream[Any]],
    complaints: list[str],
) -> tuple[Limit, ...]:
    """Return the limits of an application's members, and add mistakes to the complaints."""
    limits: list[Limit] = []
    for target, where, texts in _declarations(entities, functions, streams):
        for text in texts:
            try:
                declared = msgspec.structs.replace(parse_limit(text), target=target)
            except RequestError as error:
                complaints.append(f"{where}: {target}: {error}")
                continue
            complaint = key_complaint(declared, functions)
            if complaint:
                complaints.append(f"{where}: {complaint}")
            limits.append(declared)
    return tuple(limits)


def key_complaint(limit: Limit, functions: Container[str]) -> str:
    """Return the mistake of a limit `per key` on a target without keys; empty without any."""
    if limit.per != KEY:
        return ""
    if limit.target in functions:
        return f"{limit.target}: a function has no key; remove `per key`"
    if limit.target.startswith(STREAMS):
        return f"{limit.target}: an append has no key; remove `per key`"
    return ""


def _declarations(
    entities: Mapping[str, EntityType],
    functions: Mapping[str, Signature],
    streams: Mapping[str, Stream[Any]],
) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield target, place and texts of each member with limits."""
    for name, entity_type in entities.items():
        yield name, entity_type.where, vars(entity_type.cls).get("__limits__", ())
        for method, signature in entity_type.methods.items():
            yield f"{name}.{method}", signature.where, _texts_of(signature)
    for name, signature in functions.items():
        yield name, signature.where, _texts_of(signature)
    for name, stream in streams.items():
        yield f"{STREAMS}{name}", stream.where, stream.limits


def _texts_of(signature: Signature) -> Iterable[str]:
    texts: Iterable[str] = getattr(signature.function, "__limits__", ())
    return texts
