"""Forecast: the entities that requests and rows name, before anything runs.

A task that holds a part of the state asks other hosts for rows in batches, so it must know early which entities it will read. A
forecast decides nothing: a missing entity is asked for when a transaction reads it, and a useless name costs some bytes.
It decodes bytes without types, so no code of a user runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

import msgspec

from penstock.base.ids import EntityKey, split_entity_key
from penstock.base.schema import entities_in
from penstock.errors import RequestError
from penstock.model.application import App
from penstock.model.request import decode_request
from penstock.model.signature import Signature

NAMED_MAX: Final = 64
"""The most entities that are taken from one request or from one row."""

_decode: Final = msgspec.msgpack.decode


class Forecast:
    """Names the entities in the requests and rows of an application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._prefixes: dict[Any, tuple[str, ...]] = {}

    def of_request(self, body: bytes) -> list[EntityKey]:
        """Return the entity that a request calls, and those among its arguments."""
        try:
            request = decode_request(body)
            signature = self._app.signature(request.entity, request.method)
            positional, named = _decode(request.positional), _decode(request.named)
        except (RequestError, msgspec.MsgspecError):
            return []
        named_keys: list[EntityKey] = []
        if request.entity and request.key is not None:
            named_keys.append(EntityKey(self._app.entity(request.entity).prefix + request.key))
        arguments = _by_parameter(signature, positional, named)
        inside = (
            self._keys(signature.parameters[name].annotation, arguments[name]) for name in arguments
        )
        return [*named_keys, *islice(chain.from_iterable(inside), NAMED_MAX)]

    def of_row(self, key: EntityKey, row: bytes) -> list[EntityKey]:
        """Return the entities that a row refers to; none if its class has changed since, or is encrypted."""
        entity_type = self._app.readable.get(split_entity_key(key)[0])
        if entity_type is None or entity_type.personal or not row.startswith(entity_type.row_head):
            return []
        annotations = entity_type.attributes.values()
        if not any(map(self._prefixes_of, annotations)):
            return []
        values = _decode(row)[1:]
        inside = (self._keys(each, value) for each, value in zip(annotations, values, strict=False))
        return list(islice(chain.from_iterable(inside), NAMED_MAX))

    def _keys(self, annotation: Any, value: object) -> Iterator[EntityKey]:
        prefixes = self._prefixes_of(annotation)
        if prefixes:
            for text in _texts(value):
                for prefix in prefixes:
                    yield EntityKey(prefix + text)

    def _prefixes_of(self, annotation: Any) -> tuple[str, ...]:
        """Return how the keys of the classes begin that a type names."""
        try:
            if annotation not in self._prefixes:
                classes: Iterable[Any] = dict.fromkeys(entities_in(annotation))
                self._prefixes[annotation] = tuple(
                    prefix
                    for cls in classes
                    if (prefix := getattr(cls.__reference__, "prefix", ""))
                )
            return self._prefixes[annotation]
        except TypeError:  # a type that has no hash
            return ()


def _by_parameter(signature: Signature, positional: object, named: object) -> Mapping[str, object]:
    """Return arguments by the names of their parameters, as far as they are clear."""
    names = list(signature.parameters)
    arguments: dict[str, object] = {}
    if isinstance(positional, list):
        arguments.update(zip(names, positional, strict=False))
    if isinstance(named, dict):
        arguments.update((name, value) for name, value in named.items() if name in names)
    return arguments


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a decoded value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in chain.from_iterable(value.items()):
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
