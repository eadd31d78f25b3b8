"""The positions of generators: how many atoms of each generator are on its stream; and those of streams of changes.

A generator appends its atoms under the ids `{application}/{generator}/{number}`; behind a gateway with keys, the id
begins with the principal. The log forgets ids after a time. So the number of the next atom is a system row, which stays.
The id of an atom of changes has the position behind it in the database, which becomes such a row, too.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import EntityKey
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.step_runner import Writes
from penstock.engine.streams.system_rows import CAPTURE, GENERATOR, system_key
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.streams.change_stream import SourcePosition, position_in, stream_of_atom

_PRINCIPAL: Final = "~"
_DIGITS_MAX: Final = 18
"""A caller may choose an id with a longer number, which fits no row; no generator comes so far."""


class GeneratedId(NamedTuple):
    """The id of an atom of a generator: `key1~shop/ticks/7`.

    Attributes:
        series: The id without the number, which is the same for all atoms.
        number: The number of the atom, from 0.
    """

    series: str
    generator: str
    number: int


def generated_id(app_name: str, request_id: str) -> GeneratedId | None:
    """Return the parts of a generator's id; None for any other id."""
    series, _, number = request_id.rpartition("/")
    if not (series and number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX):
        return None
    name, slash, generator = series.rpartition(_PRINCIPAL)[2].partition("/")
    is_generated = bool(slash) and name == app_name
    return GeneratedId(series, generator, int(number)) if is_generated else None


def position_key(series: str) -> EntityKey:
    """Return the key of the row with the number of the next atom."""
    return system_key(GENERATOR, series)


def position_of(row: bytes | None) -> int:
    """Return the number of the next atom; 0 without a row."""
    return 0 if row is None else msgspec.msgpack.decode(row, type=int)


def capture_key(stream: str) -> EntityKey:
    """Return the key of the row with the position of a stream of changes."""
    return system_key(CAPTURE, stream)


def capture_position_of(row: bytes | None) -> SourcePosition | None:
    """Return the position of a stream of changes; None before its first atom."""
    return None if row is None else position_in(msgspec.msgpack.decode(row, type=str))


class GeneratorPositions:
    """Keeps the positions of an application's generators and streams of changes in its state."""

    def __init__(self, app: App, read: Read, apply: Callable[[Writes], None]) -> None:
        self._app_name = app.name
        self._generators = app.topology.generators
        self._captures = app.topology.captures
        self._read = read
        self._apply = apply

    def note(self, cascade: Cascade) -> None:
        """Note the position of a generator, or of a stream of changes, if a record is one of its atoms."""
        if not cascade.published:
            return
        if self._captures and (captured := stream_of_atom(cascade.root)) is not None:
            stream, position = captured
            if stream == cascade.published[0].stream:
                self._apply({capture_key(stream): msgspec.msgpack.encode(position)})
            return
        if not self._generators:
            return
        generated = generated_id(self._app_name, cascade.root)
        generator = generated and self._generators.get(generated.generator)
        if not (generated and generator):
            return
        if generator.stream.name == cascade.published[0].stream:
            key = position_key(generated.series)
            # A generator that is given again repeats atoms; the log drops most of them, and none may set it back.
            if generated.number >= position_of(self._read(key)):
                self._apply({key: msgspec.msgpack.encode(generated.number + 1)})
