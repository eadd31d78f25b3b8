"""The types of values that may wait during a deployment: arguments, results, events, questions and replies.

Rows have a tag, so a row of another shape is never read as one of this shape. Values that wait in the log, in a queue of a
cascade, or in a handler that waits, are bytes without a tag. A value that does not fit its new type fails when it is read. A
type as which such a value would be read as another value is refused with its deployment. The descriptions are kept from
deployment to deployment, also of a method or stream that is gone, because it may come back.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.base.case_twins import case_twins
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.shape import Shape, shape_of
from penstock.model.signature import Signature
from penstock.model.streams.stream import UNKNOWN
from penstock.model.versions.stored_class import stored_type
from penstock.model.versions.widening import ROUNDED, misreading

WaitingTypes = dict[str, Shape]
"""The shape of the values of each method, function, stream, portal and task, by its kind and name."""

_KEY: Final = ("__key", str)
_RESULT: Final = "result"
_REMEDIES: Final = {
    "stream": "declare a stream with another name",
    "portal": "declare a portal with another name",
    "task": "give the task another name=",
    _RESULT: "give the method another name",
}
_PARAMETER: Final = (
    "give the parameter another name: waiting requests with the former name fail then"
)


def waiting_types(app: App) -> WaitingTypes:
    """Return the types of the values that may wait for an application."""
    types: dict[str, dict[str, Any]] = {}
    for entity_type in app.entities.values():
        signatures = dict(entity_type.methods)
        if not entity_type.migrations:  # else see `call.sent`
            signatures |= _creations_of(entity_type)
        for name, signature in signatures.items():
            types |= _types_of(f"{entity_type.stored_name}.{name}", signature)
    for name, signature in app.functions.items():
        types |= _types_of(name, signature)
    topology = app.topology
    for name, stream in topology.streams.items():
        types[f"stream {name}"] = {"event": stream.annotation}
    for name, portal in topology.portals.items():
        request, reply = portal.annotations
        types[f"portal {name}"] = {"request": request, "reply": reply}
    for name, task in topology.tasks.items():
        events = {"event": task.event, "output": task.output}
        types[f"task {name}"] = {
            what: each.annotation for what, each in events.items() if each is not None
        } | {"key": task.key_annotation}
    return {
        what: shape_of(what, _KEY, known)
        for what, each in types.items()
        if (known := {name: hint for name, hint in each.items() if hint not in (None, UNKNOWN)})
    }


def misread_types(former: Mapping[str, Shape], present: Mapping[str, Shape]) -> list[str]:
    """Return a refusal for each type as which a waiting value would be read as another value."""
    streams = [what for what in former if what.startswith("stream ")]
    refusals = [
        f"{later}: there was {earlier}, and the two names differ only in case, which SQL ignores; give it another name"
        for earlier, later in case_twins((w for w in present if w.startswith("stream ")), streams)
    ]
    for what, shape in present.items():
        was = former.get(what)
        if was is None or was == shape:
            continue
        before, after = stored_type(what, was).attributes, stored_type(what, shape).attributes
        for name in sorted(before.keys() & after.keys()):
            why = misreading(before[name], after[name])
            if why is not None:
                both = "; int | float holds both" if why.endswith(ROUNDED) else ""
                refusals.append(
                    f"{what}: {name}: {why}{both}; waiting values would be read with another meaning, so keep the type, or "
                    f"{_REMEDIES.get(what.partition(' ')[0], _PARAMETER)}"
                )
    return refusals


def _creations_of(entity_type: EntityType) -> dict[str, Signature]:
    """Return the creations of a class whose arguments have types of their own."""
    # Without an `__init__`, each takes the key and the attributes.
    has_one_form = entity_type.initializer is None
    return {
        method: signature
        for method, signature in entity_type.creations.items()
        if method == "create" or not (has_one_form or entity_type.runs_initializer(method))
    }


def _types_of(what: str, signature: Signature) -> dict[str, dict[str, Any]]:
    parameters = {name: each.annotation for name, each in signature.parameters.items()}
    return {what: parameters, f"{_RESULT} {what}": {_RESULT: signature.returns}}
