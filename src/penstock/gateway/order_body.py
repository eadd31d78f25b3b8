"""The body of an operator's order: JSON that becomes a struct."""

from typing import TypeVar

import msgspec

from penstock.errors import RequestError

T = TypeVar("T")


def order_in(body: bytes, order_type: type[T], expected: str) -> T:
    """Return the order in a body.

    Args:
        body: The body.
        order_type: The struct.
        expected: The form of a right body, for the message: `an order such as {"partitions": 8}`.

    Raises:
        RequestError: The body is another thing.
    """
    try:
        return msgspec.json.decode(body, type=order_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not {expected}: {error}") from error
