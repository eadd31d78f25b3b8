"""Batches of atoms for followers: followers that ask for the same atoms at the same epoch share one reading.

After each epoch, all followers of a stream that have taken its last atom ask for the same batch. It is read and
rendered once, in a thread. A follower that leaves takes nothing from the others. The newest batches are kept, a bounded
number of bytes, because the followers do not ask at the same moment.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.base.ids import Epoch
from penstock.gateway.streams.stream_bodies import AtomBatch, Rendering
from penstock.journal.atoms import AtomReader, StreamAtom
from penstock.model.streams.stream import Stream

_BATCH_BYTES: Final = 512 << 10
_KEPT_BYTES: Final = 8 << 20
_KEPT: Final = 256


class Question(NamedTuple):
    """The question of a follower."""

    stream: Stream[Any]
    start: int
    limit: int
    rendering: Rendering


class RenderedBatch(NamedTuple):
    """A batch as a follower gets it.

    Attributes:
        body: Its bytes.
        atoms: The number of its atoms.
        next: The number after the last atom.
        published: The number of atoms that the stream had.
    """

    body: bytes
    atoms: int
    next: int
    published: int


class SharedBatches:
    """Reads the batches of one gateway. For one event loop."""

    def __init__(self, reader: AtomReader, threads: ThreadPoolExecutor) -> None:
        """Take the reader of the journal, and the threads in which it reads."""
        self._reader = reader
        self._threads = threads
        self._readings: dict[tuple[Question, Epoch], asyncio.Future[RenderedBatch]] = {}
        self._kept: OrderedDict[tuple[Question, Epoch], RenderedBatch] = OrderedDict()
        self._kept_bytes = 0

    async def newest(self, question: Question) -> RenderedBatch:
        """Return the atoms that the journal has now.

        Raises:
            Gone: Retention has removed the first atom.
        """
        return await self._begin(question)

    async def at(self, question: Question, epoch: Epoch) -> RenderedBatch:
        """Return the atoms that the journal has, with those of an epoch that is committed; raises as `newest`."""
        key = (question, epoch)
        if (kept := self._kept.get(key)) is not None:
            return kept
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = self._begin(question)
            reading.add_done_callback(partial(self._end, key))
        return await asyncio.shield(reading)  # the others still want it when this follower leaves

    def _begin(self, question: Question) -> asyncio.Future[RenderedBatch]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._read, question)

    def _end(self, key: tuple[Question, Epoch], reading: asyncio.Future[RenderedBatch]) -> None:
        """Keep a batch that was read, and drop the oldest ones; an error is not kept, nor is data of persons."""
        del self._readings[key]
        if reading.cancelled() or reading.exception() is not None:
            return
        if key[0].stream.events.is_personal:
            return
        self._kept[key] = reading.result()
        self._kept_bytes += len(reading.result().body)
        while self._kept_bytes > _KEPT_BYTES or len(self._kept) > _KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.body)

    def _read(self, question: Question) -> RenderedBatch:
        stream, start, limit, rendering = question
        atoms: list[StreamAtom] = []
        size = 0
        for atom in self._reader.atoms(stream.name, start):
            atoms.append(atom)
            size += len(atom.events)
            if len(atoms) >= limit or size >= _BATCH_BYTES:
                break
        batch = AtomBatch(stream, start, atoms, self._reader.published(stream.name))
        return RenderedBatch(rendering(batch), len(atoms), batch.next, batch.published)
