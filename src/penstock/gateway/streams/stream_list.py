"""The list of an application's streams: their publishers and subscribers, and their atoms."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.gateway.streams.stream_bodies import StreamBody
from penstock.journal.api import Journal
from penstock.journal.as_of import epoch_as_of
from penstock.journal.atoms import AtomReader
from penstock.model.streams.flow import Workflow
from penstock.model.streams.routing import RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.stream import Stream, type_name
from penstock.model.streams.topology import Subscriber, Topology

_WINDOW_S: Final = 60


def list_streams(
    topology: Topology, journal: Journal, reader: AtomReader, names: list[str], now: datetime
) -> list[StreamBody]:
    """Return the description of some streams, in order of their names.

    Raises:
        PenstockError: The journal cannot be read, or is damaged.
    """
    publishers = publishers_of(topology)
    earlier, span_s = _earlier_counts(journal, now)
    listed: list[StreamBody] = []
    for name in sorted(names):
        stream, published = topology.streams[name], reader.published(name)
        rate = max(0, published - earlier.get(name, 0)) / span_s
        subscribers = [
            subscriber_name(subscriber) for subscriber in topology.subscribers.get(name, ())
        ]
        listed.append(
            StreamBody(
                name=name,
                events=type_name(stream.annotation),
                publisher=publishers[name],
                open=stream.is_open,
                subscribers=subscribers,
                oldest=reader.oldest(name),
                next=published,
                rate=round(rate, 3),
            )
        )
    return listed


def publishers_of(topology: Topology) -> dict[str, str]:
    """Return the publisher of each stream, by the name of the stream."""
    publishers = {name: _publisher(stream) for name, stream in topology.streams.items()}
    for name, plan in topology.workflows.items():
        publishers[plan.workflow.failed.name] = f"failures of workflow {name}"
    for subscribers in topology.subscribers.values():
        for subscriber in subscribers:
            if not isinstance(subscriber, Sequencer):
                publishers[subscriber.failed.name] = f"failures of {subscriber_name(subscriber)}"
    return publishers


def subscriber_name(subscriber: Subscriber) -> str:
    """Return the kind and the name of a consumer."""
    match subscriber:
        case Workflow():
            return f"workflow {subscriber.flow_name}"
        case Splitter():
            return f"splitter {subscriber.name}"
        case Sequencer():
            return f"sequencer {subscriber.name}"
        case RequestSink():
            return f"requests {subscriber.name}"


def _publisher(stream: Stream[Any]) -> str:
    match stream:
        case Workflow() | Sequencer():
            return subscriber_name(stream)
        case Split():
            return subscriber_name(stream.splitter)
        case _:
            return "appends and emit" if stream.is_open else ""


def _earlier_counts(journal: Journal, now: datetime) -> tuple[Mapping[str, int], float]:
    """Return the number of atoms of each stream a minute ago, and the seconds since then.

    Of a journal that holds no epoch of that time, they are the numbers at its first epoch. The seconds are at least 1.
    """
    try:
        epoch = epoch_as_of(journal, now - timedelta(seconds=_WINDOW_S))
    except QueryError:  # the journal is younger
        return _first_counts(journal, now)
    commit = next(iter(journal.commits(Epoch(epoch - 1), epoch)), None)
    return {} if commit is None else commit.atoms, _WINDOW_S


def _first_counts(journal: Journal, now: datetime) -> tuple[Mapping[str, int], float]:
    """Return the number of atoms at the first epoch that a journal holds, and the seconds since then.

    The atoms of epoch 0 itself count as published since then.
    """
    commit = next(iter(journal.commits(Epoch(journal.first() - 1))), None)
    if commit is None:
        return {}, _WINDOW_S
    span_s = now.timestamp() - commit.time_us / 1_000_000
    return commit.atoms if commit.epoch else {}, min(max(span_s, 1), _WINDOW_S)
