"""The check of a transaction's sizes against its limits."""

from collections.abc import Mapping, Sequence

from penstock.base.ids import EntityKey
from penstock.engine.limits import Limits
from penstock.errors import LimitExceeded
from penstock.model.running_step import Dispatch, Emission


def check_sizes(
    limits: Limits,
    touched: int,
    size: int,
    writes: Mapping[EntityKey, bytes | None],
    outbox: Sequence[Emission | Dispatch],
) -> None:
    """Check a transaction against the limits of sizes.

    Args:
        touched: The number of entities that it touched.
        size: The bytes of its result.
        writes: Its new states.

    Raises:
        LimitExceeded: It exceeds a limit; the message names it.
    """
    if touched > limits.entities:
        raise LimitExceeded(f"touched {touched} entities, more than entities = {limits.entities}")
    total = size + sum(map(len, filter(None, writes.values())))
    if outbox:
        total += sum(map(_size_of, outbox))
    if total > limits.state_bytes:
        _check_states(writes, limits.state_bytes)
    if total > limits.output_bytes:
        raise LimitExceeded(
            f"result, changes and events take {total} bytes, more than "
            f"output_bytes = {limits.output_bytes}"
        )


def _check_states(writes: Mapping[EntityKey, bytes | None], state_bytes: int) -> None:
    """Check that no single state is too large."""
    for key, data in writes.items():
        if data is not None and len(data) > state_bytes:
            raise LimitExceeded(
                f"{key} takes {len(data)} bytes, more than state_bytes = {state_bytes}"
            )


def _size_of(sent: Emission | Dispatch) -> int:
    return sum(map(len, sent.events)) if isinstance(sent, Emission) else len(sent.body)
