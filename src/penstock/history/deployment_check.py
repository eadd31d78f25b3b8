"""The check of a deployment: the changes for callers and requests if the present code ran from the next epoch on.

It compares the interface of the present code with the deployed code, looks for waiting requests that no longer fit,
and runs the newest epochs again with the present code. Nothing is written. The comparison of the stored classes
belongs to the opening of the journal.
"""

import inspect
from collections.abc import Container, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from penstock.base.constraint import constraint_text, without_constraints
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.base.record import simplified
from penstock.deployment.code_check import SHOWN_MAX, unfit_requests
from penstock.engine.execute import Limits
from penstock.history.code_versions import CodeVersion
from penstock.history.reader import HistoryReader
from penstock.history.replay import Progress
from penstock.history.rerun import Rerun
from penstock.history.what_if import Scenario, WhatIf, what_if
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.shape import described
from penstock.model.signature import Signature
from penstock.model.versions.schema_change import SchemaChange

TRIED_MAX: Final = 10_000
"""How many handlers that wait are run again."""


class Level(StrEnum):
    """The meaning of a change for the deployment."""

    SAFE = "safe"
    WORD = "needs-a-word"
    REFUSED = "refused"


class CheckFinding(msgspec.Struct, frozen=True):
    """One change.

    Attributes:
        what: The change, in a sentence.
    """

    level: Level
    kind: Literal["schema", "interface", "backlog", "dry-run", "view"]
    what: str


def findings_of_schemas(changes: Sequence[SchemaChange]) -> list[CheckFinding]:
    """Return the compatible changes of stored classes as findings; a removal, and what may be a mistake, needs a word."""
    return [
        CheckFinding(
            Level.WORD if change.version.removed or line in change.doubts else Level.SAFE,
            "schema",
            f"{change.name}: {line}",
        )
        for change in changes
        for line in change.changes
    ]


def compare_interfaces(deployed: App, present: App) -> Iterator[CheckFinding]:
    """Compare classes, methods, functions, routes, streams and constraints; a removal or a change needs a word."""
    was, now = _interface(deployed), _interface(present)
    # Whether an attribute is there is a finding of the schemas, which know no constraints.
    attributes = _attributes(deployed), _attributes(present)
    for name in sorted(attributes[0].keys() & attributes[1].keys()):
        was[name], now[name] = attributes[0][name], attributes[1][name]
    for name in sorted(was.keys() | now.keys()):
        if name not in was:
            yield CheckFinding(Level.SAFE, "interface", f"{name} is added")
        elif name not in now:
            yield CheckFinding(Level.WORD, "interface", f"{name} is removed")
        elif was[name] != now[name]:
            yield CheckFinding(
                Level.WORD, "interface", f"{name} was {was[name]}, and is {now[name]}"
            )


def compare_unstored(deployed: App, present: App, stored: Container[str]) -> Iterator[CheckFinding]:
    """Compare the attributes of classes without stored entities; any change of them is safe.

    Args:
        stored: The classes with stored entities, whose changes the opening of the journal finds.
    """
    for name, entity_type in present.stored.items():
        former = deployed.stored.get(name)
        if former is None or name in stored:
            continue
        was, now = former.shape.lines, entity_type.shape.lines
        lines = [f"{line} is removed" for line in was if line not in now]
        lines += [f"{line} is added" for line in now if line not in was]
        for line in lines:
            yield CheckFinding(Level.SAFE, "schema", f"{name}, without stored entities: {line}")


def check_backlog(
    data: Path, journal: Journal, deployed: App, present: App
) -> Iterator[CheckFinding]:
    """Find the waiting and scheduled requests that the deployed code accepts, and the present code does not.

    Args:
        deployed: The application that would process them without the deployment.
        present: The application that would process them after it.
    """
    for what in unfit_requests(data, journal, lambda: deployed, present):
        yield CheckFinding(Level.WORD, "backlog", what)


def check_waits(history: HistoryReader, present: App, limits: Limits) -> Iterator[CheckFinding]:
    """Run the handlers that wait for a reply again with the present code, and find those that cannot go on."""
    if history.last == BEFORE_FIRST or not present.topology.streams:
        return
    state = history.state_before(Epoch(history.last + 1))
    broken = Rerun(present, state, limits, history.secret).broken_waits(TRIED_MAX)
    for (task, key), why in broken[:SHOWN_MAX]:
        under = f" with key {key}" if key else ""
        what = f"a handler of {task}{under} waits for a reply, and cannot go on: {why}"
        yield CheckFinding(Level.WORD, "backlog", what)
    if len(broken) > SHOWN_MAX:
        more = f"{len(broken) - SHOWN_MAX:,} more waiting handlers cannot go on"
        yield CheckFinding(Level.WORD, "backlog", more)


def dry_run(
    history: HistoryReader,
    deployed: CodeVersion,
    present: App,
    limits: Limits,
    epochs: int,
    progress: Progress,
) -> WhatIf | None:
    """Run the newest epochs of the deployed code again with the present code; None if there are none.

    Args:
        deployed: The code that is deployed; it may have executed no epoch yet.
        progress: Receives each finished epoch.

    Raises:
        ClassChanged: A class of the present code cannot read the stored entities.
    """
    has_run = deployed.since <= history.last != BEFORE_FIRST
    if not has_run or not epochs or deployed.app is present:
        return None
    first = max(history.first, deployed.since, history.last + 1 - epochs)
    span = Epoch(first), history.last
    return what_if(history, Scenario(deployed.app, present), limits, span, progress)


def findings_of(run: WhatIf) -> Iterator[CheckFinding]:
    """Return the differences of a dry run as findings."""
    counts = {
        "replies": run.replies.differing.count,
        "entities": run.entities.count,
        "atoms": sum(run.cascades.atoms.values()),
        "sent requests": run.cascades.sent.count,
        "later records": run.cascades.later.count,
    }
    differing = [f"{count:,} {noun}" for noun, count in counts.items() if count]
    where = f"of {run.requests:,} requests of epochs {run.first} to {run.last}"
    if differing:
        what = f"{', '.join(differing)} {where} would have come out otherwise"
        yield CheckFinding(Level.WORD, "dry-run", what)
    else:
        yield CheckFinding(Level.SAFE, "dry-run", f"nothing {where} would have come out otherwise")


def level_of(findings: list[CheckFinding]) -> Level:
    """Return the most serious level of some findings."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.SAFE)


def _interface(app: App) -> dict[str, str]:
    """Return the parts of an application that callers use, as text by name."""
    classes = app.entities | app.former  # callers may use former names
    interface = {f"class {name}": "an entity class" for name in classes}
    interface |= {
        f"method {name}.{method}": _text(signature)
        for name, entity_type in classes.items()
        for method, signature in entity_type.methods.items()
    }
    interface |= {f"function {name}": _text(signature) for name, signature in app.functions.items()}
    for route in app.routes:
        target = f"{route.entity}.{route.method}" if route.entity else route.method
        signed = "" if route.signed is None else f", signed by {' or '.join(route.signed.secrets)}"
        interface[f"route {route.verb} {route.path}"] = target + signed
    for name, stream in app.topology.streams.items():
        if not name.startswith("$"):
            interface[f"stream {name}"] = f"a stream of {_type_text(stream.declared)}"
    return interface


def _attributes(app: App) -> dict[str, str]:
    """Return the constraints of the attributes and keys of an application's classes, as text by name."""
    return {
        f"attribute {entity_type.stored_name}.{name}": constraint_text(annotation)
        or "without a constraint"
        for entity_type in app.stored.values()
        for name, annotation in {
            entity_type.key_name: entity_type.constrained_key,
            **entity_type.constrained,
        }.items()
    }


def _type_text(constrained: Any) -> str:
    """Return a type as text, with its constraints."""
    annotation = without_constraints(constrained)
    limits = constraint_text(simplified(constrained, constrained=True))
    return f"{described(annotation)[0]}{f' with {limits}' if limits else ''}"


class _TypeText(str):
    """The text of a type, which a signature shows as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _text(signature: Signature) -> str:
    """Return a signature as text; a class has its stored name, so that a new name is no difference."""
    parameters = [
        parameter.replace(annotation=_TypeText(_type_text(signature.constrained[parameter.name])))
        for parameter in signature.parameters.values()
    ]
    returns = _TypeText(_type_text(signature.declared_result))
    shape = inspect.Signature(parameters, return_annotation=returns)
    return f"{'@readonly ' if signature.readonly else ''}{shape}"
