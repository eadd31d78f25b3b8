"""Time, randomness and ids for handlers: every run of a request gets the same values.

A handler uses them in place of the real clock and of unseeded randomness, which would differ in a replay.
"""

import random as _random
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from penstock.base.ids import RequestId
from penstock.errors import OutsideTransaction
from penstock.model.context import Transaction, active
from penstock.model.principal import Principal, principal_of

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _running(what: str) -> Transaction:
    """Return the running transaction, for the function of this module with a name."""
    txn = active()
    if txn is None:
        raise OutsideTransaction(
            f"{what}() is about the request that runs: call it in a handler, and not in a module or as the default of an "
            "attribute; a test sets the time with kit.clock"
        )
    return txn


def now() -> datetime:
    """Return the time at which the running request was appended to the log, in UTC."""
    return _BEGINNING + timedelta(microseconds=_running("now").time_us)


def random() -> _random.Random:
    """Return a `random.Random`; it repeats at every run of the request, and no caller can predict it."""
    return _running("random").derived.random()


def uuid() -> UUID:
    """Return a new UUID; it repeats at every run of the request, and no caller can predict it."""
    return _running("uuid").derived.uuid()


def request_id() -> RequestId:
    """Return the id of the running request."""
    return _running("request_id").request_id


def principal() -> Principal:
    """Return the caller of the running request: its id, its scopes and the claims of its token.

    The log keeps them with the request, so a replay sees the same. It is the same in each method that the handler
    calls. The id is empty for a request that the application itself has sent (`send`, `ask`, a workflow), for a command on the
    machine of the data directory, and for every caller of a gateway without keys and tokens.
    """
    txn = _running("principal")
    return principal_of(txn.request_id, txn.rights)
