"""The functions of users that route the events of an atom: those of a splitter, and those of a request sink."""

from typing import Any

from penstock.errors import UserError
from penstock.model.application import App
from penstock.model.call import call_of, sent
from penstock.model.context import current
from penstock.model.streams.flow import first_match
from penstock.model.streams.routing import RequestSink, Splitter
from penstock.model.streams.stream import Atom


def split_events(splitter: Splitter[Any], atom: Atom) -> list[Atom]:
    """Return the events of each stream of a splitter; an event that fits none is in none.

    The caller has begun a transaction.
    """
    current().routing = f"a function of splitter {splitter.name}"
    events: list[list[bytes]] = [[] for _ in splitter.streams]
    decode = splitter.source.events.decode
    for data in atom:
        index = first_match(splitter.predicates, decode(data))
        if index is not None:
            events[index].append(data)
    return [tuple(chosen) for chosen in events]


def request_bodies(app: App, sink: RequestSink[Any], atom: Atom) -> list[bytes]:
    """Return the body of the request that a sink makes of each event. The caller has begun a transaction.

    Raises:
        UserError: The arguments of a request are no tuple.
        RequestError: They do not fit the method.
    """
    current().routing = f"the function of call {sink.name}"
    bodies: list[bytes] = []
    decode = sink.source.events.decode
    for data in atom:
        arguments = sink.arguments(decode(data))
        if type(arguments) is not tuple:
            raise UserError(
                f"{sink.where}: the arguments of {sink.name} are a tuple, such as (Item(event.item), 1), not "
                f"{type(arguments).__qualname__}"
            )
        body = sent(app, call_of(sink.method, arguments, {}))
        bodies.append(body)
    return bodies
