"""Which subject a request concerns: its arguments and its reply are encrypted with the key of this subject."""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.ids import EntityKey, entity_key
from penstock.errors import RequestError
from penstock.model.entity_type import EntityType
from penstock.model.request import Request


def concerned_subject(
    entities: Mapping[str, EntityType], request: Request, arguments: Iterable[Any]
) -> EntityKey | None:
    """Return the called entity of a personal class, or else the first argument that refers to such an entity.

    Args:
        entities: The classes of the application.
        request: The request.
        arguments: Its arguments, before they are encoded.

    Raises:
        RequestError: The request creates an entity of a personal class, and its key is not known yet.
    """
    if request.entity and entities[request.entity].personal:
        if request.key is None:
            raise RequestError(
                f"{request.entity} is a personal class, so the request that creates an entity needs its key: the "
                "arguments are encrypted with a key of this entity"
            )
        return entity_key(request.entity, request.key)
    for value in arguments:
        entity_type = getattr(type(value), "__reference__", None)
        if isinstance(entity_type, EntityType) and entity_type.personal:
            return entity_type.key_of(value)
    return None
