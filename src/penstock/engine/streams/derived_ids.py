"""Ids of the parts of a cascade: they follow from the id of its record, so each run of it gives the same.

No id that a caller may choose contains `~~`, so no caller can take a derived id first.
"""

from typing import Final

from penstock.base.ids import RequestId

MARK: Final = "~~"
"""Between the id of a record and the rest of a derived id."""

_STEP: Final = "s"
_CONTINUATION: Final = "c"
_TIMEOUT: Final = f"{MARK}t"


def sent_id(root: RequestId, number: int) -> RequestId:
    """Return the id of a request that a cascade sends: `order-7~~1`."""
    return RequestId(f"{root}{MARK}{number}")


def step_id(root: RequestId, number: int) -> RequestId:
    """Return the id of a workflow step: `order-7~~s1`."""
    return RequestId(f"{root}{MARK}{_STEP}{number}")


def part_id(step: RequestId, index: int) -> RequestId:
    """Return the id of a question or a request that a workflow step sends: `order-7~~s1.0`."""
    return RequestId(f"{step}.{index}")


def continuation_id(root: RequestId) -> RequestId:
    """Return the id of the record that continues a cascade: `order-7~~c1`, and then `order-7~~c2`."""
    first, mark, number = root.rpartition(f"{MARK}{_CONTINUATION}")
    if mark and number.isdigit():
        return RequestId(f"{first}{mark}{int(number) + 1}")
    return RequestId(f"{root}{MARK}{_CONTINUATION}1")


def timeout_id(question: str) -> RequestId:
    """Return the id of the record that ends the time of a question: `order-7~~s1.0~~t`."""
    return RequestId(question + _TIMEOUT)


def timed_question(record: RequestId) -> RequestId | None:
    """Return the id of the question whose time a record ends; None for another record."""
    return RequestId(record.removesuffix(_TIMEOUT)) if record.endswith(_TIMEOUT) else None


def is_question_id(request_id: RequestId) -> bool:
    """Say whether a request may be the question of a workflow step to an entity."""
    return f"{MARK}{_STEP}" in request_id
