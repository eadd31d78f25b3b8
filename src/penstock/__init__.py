"""Serializable transactions over plain Python classes, run as one dataflow on Apache Spark."""

from penstock.errors import (
    Aborted,
    AlreadyExists,
    DefinitionError,
    IntegrityError,
    LimitExceeded,
    NoSuchEntity,
    OperationalError,
    PenstockError,
    RequestError,
    UserError,
)
from penstock.model.application import App
from penstock.model.context import now, random, request_id, savepoint, uuid
from penstock.model.entity import entity, key, readonly, transactional
from penstock.model.route import route

__all__ = [
    "Aborted",
    "AlreadyExists",
    "App",
    "DefinitionError",
    "IntegrityError",
    "LimitExceeded",
    "NoSuchEntity",
    "OperationalError",
    "PenstockError",
    "RequestError",
    "UserError",
    "entity",
    "key",
    "now",
    "random",
    "readonly",
    "request_id",
    "route",
    "savepoint",
    "transactional",
    "uuid",
]
