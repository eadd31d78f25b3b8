"""Which subject a request concerns: its arguments and its reply are encrypted with the key of this subject."""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.base.ids import EntityKey
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ConfigError, RequestError
from penstock.model.entity_type import EntityType
from penstock.model.references import subject_in
from penstock.model.request import Request
from penstock.model.sealed_value import sealed_request


def protected_request(
    class_of: Callable[[str], EntityType],
    keys: SubjectKeys | None,
    request: Request,
    arguments: Sequence[Any],
) -> Request:
    """Return a request with its arguments encrypted if it concerns a subject.

    Args:
        class_of: Returns an entity class of the application by its name.
        keys: The keys of the subjects; None in a process that has none.
        request: The request, with readable arguments.
        arguments: Its arguments, before they are encoded.

    Raises:
        RequestError: The request creates an entity of a personal class, and its key is not known yet.
        ConfigError: The request concerns a subject, and there are no keys.
    """
    subject = _subject(class_of, request, arguments)
    if subject is None:
        return request
    if keys is None:
        raise ConfigError(
            f"a request concerns {subject} of a personal class, and this process has no keys to encrypt its arguments; "
            "open the data directory first"
        )
    return sealed_request(keys, subject, request)


def _subject(
    class_of: Callable[[str], EntityType], request: Request, arguments: Sequence[Any]
) -> EntityKey | None:
    """Return the called entity of a personal class, or else such an entity in the first argument that refers to one.

    An argument may have references inside of it; see `subject_in`.

    Args:
        class_of: Returns an entity class of the application by its name.
        arguments: Its arguments, before they are encoded.

    Raises:
        RequestError: The request creates an entity of a personal class, and its key is not known yet.
    """
    entity_type = class_of(request.entity) if request.entity else None
    if entity_type is not None and entity_type.personal:
        if request.key is None:
            raise RequestError(
                f"{request.entity} is a personal class, so the request that creates an entity needs its key: the "
                "arguments are encrypted with a key of this entity"
            )
        return EntityKey(entity_type.prefix + request.key)
    for value in arguments:
        if (subject := subject_in(value)) is not None:
            return subject
    return None
