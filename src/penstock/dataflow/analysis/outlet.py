"""The abstract interpretation of `emit`, `send`, `send_after`, `send_at`, `ask` and the `ask` of a portal.

They lead from a handler to streams, requests and portals. The stream, the method and the portal are objects of the
application, so an edge names them if the source does.
"""

import ast
from abc import ABC
from collections.abc import Iterator
from typing import Any, Final

from penstock.dataflow.analysis.expression import Expressions
from penstock.dataflow.analysis.library import Arguments
from penstock.dataflow.analysis.source import plain_function
from penstock.dataflow.analysis.value import (
    NOTHING,
    UNKNOWN,
    Atom,
    BoundMethod,
    CollectionValue,
    Question,
    StaticObject,
    TupleValue,
    Value,
    elements,
    entity_of,
    join,
    of_type,
    origin_of,
    single,
)
from penstock.dataflow.graph import Action, Endpoint, Origin, StreamKind, path_of
from penstock.model.declaration import CREATIONS
from penstock.model.entity_ask import ask
from penstock.model.sending import send, send_after, send_at
from penstock.model.signature import Signature
from penstock.model.streams.ask import gather
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import Stream, emit
from penstock.model.streams.task_state import states

_METHOD_AT: Final = {send: 0, send_after: 1, send_at: 1, ask: 0}
"""The position of the method among the arguments."""


class Outlets(Expressions, ABC):
    """A frame that evaluates the events, requests and questions of handlers."""

    def _at_await(self, node: ast.Await) -> Value:
        """Return the reply to a question; any other awaited value is its own result."""
        return join(_reply(atom) for atom in self.evaluate(node.value))

    def outlet(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value | None:
        """Evaluate a function of Penstock that publishes, sends or asks; None for another function."""
        if thing is emit:
            self._emit(node, arguments)
            return NOTHING
        if thing is gather:
            given = join((*arguments.positional, elements_of(arguments.rest)))
            return single(CollectionValue(join(map(_reply, given))))
        if thing is states:
            keyed = TupleValue((of_type(str, Origin.STATE), join(arguments.positional[:1])))
            return single(CollectionValue(single(keyed)))
        if any(thing is known for known in _METHOD_AT):
            return self._send(node, thing, arguments)
        return None

    def question(self, node: ast.Call, receiver: Atom, name: str) -> Value | None:
        """Record a question to a portal, and return it; None for a method of another object."""
        portal = receiver.thing if isinstance(receiver, StaticObject) else None
        if not isinstance(portal, Portal) or name != "ask":
            return None
        path = path_of(StreamKind.PORTAL, portal.name)
        self.edge(node, Action.ASK, Endpoint(path, path), Origin.CONSTANT)
        return single(Question(of_type(portal.annotations[1], Origin.RESULT)))

    def _emit(self, node: ast.Call, arguments: Arguments) -> None:
        targets = [
            atom for atom in join(arguments.positional[:1]) if isinstance(atom, StaticObject)
        ]
        streams = [atom.thing for atom in targets if isinstance(atom.thing, Stream)]
        for stream in streams:
            path = path_of(StreamKind.STREAM, stream.name)
            self.edge(node, Action.EMIT, Endpoint(path, path), Origin.CONSTANT)
        if not streams:
            self.unknown(node, Action.EMIT, _word(node, 0))

    def _send(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        action = Action.ASK if thing is ask else Action.SEND
        at = _METHOD_AT[thing]
        replies = NOTHING
        known = False
        for atom in join(arguments.positional[at : at + 1]):
            for target, returns in self._methods(atom):
                known = True
                is_function = target.operator == target.member
                given = join((*arguments.positional[at + 1 : at + 2], arguments.rest))
                if isinstance(atom, BoundMethod) and entity_of(atom.receiver) is not None:
                    given = single(atom.receiver)
                origin = Origin.CONSTANT if is_function else origin_of(given)
                self.edge(node, action, target, origin)
                replies = join((replies, of_type(returns, Origin.RESULT)))
        if not known:
            self.unknown(node, action, _word(node, at))
            replies = UNKNOWN
        return single(Question(replies)) if thing is ask else NOTHING

    def _methods(self, atom: Atom) -> Iterator[tuple[Endpoint, Any]]:
        """Yield the methods of the application that a value can be, with their results."""
        match atom:
            case BoundMethod(receiver=StaticObject(thing=cls), name=name):
                entity = getattr(cls, "__reference__", None)
                if entity is not None:
                    yield Endpoint(entity.name, name), cls if name in CREATIONS else Any
            case BoundMethod(receiver=receiver, name=name) if (
                entity := entity_of(receiver)
            ) is not None and name in entity.methods:
                yield Endpoint(entity.name, name), entity.methods[name].returns
            case StaticObject(thing=thing) if (function := plain_function(thing)) is not None:
                for end, signature in self._signatures():
                    if plain_function(signature.function) is function:
                        yield end, signature.returns
            case _:
                pass

    def _signatures(self) -> Iterator[tuple[Endpoint, Signature]]:
        app = self.application.app
        for name, signature in app.functions.items():
            yield Endpoint(name, name), signature
        for entity in app.entities.values():
            for name, signature in entity.methods.items():
                yield Endpoint(entity.name, name), signature


def elements_of(value: Value) -> Value:
    """Return the elements of the collections of a value, and its other atoms."""
    return join(single(atom) if isinstance(atom, Question) else elements(atom) for atom in value)


def _reply(atom: Atom) -> Value:
    return atom.reply if isinstance(atom, Question) else single(atom)


def _word(node: ast.Call, position: int) -> str:
    """Return the source of an argument."""
    return ast.unparse(node.args[position]) if len(node.args) > position else "?"
