"""Ids of the parts of a cascade: they follow from the id of its record, so each run of it gives the same.

No id that a caller may choose contains `~~`, so no caller can take a derived id first.

The id of a record can be derived itself: a request that sends a request, again and again, would get longer and longer
ids. So a long id of a record is replaced by its beginning and a hash of it, before an id is derived from it.
"""

import re
from hashlib import blake2b
from typing import Final

from penstock.base.ids import DERIVED_MARK, RequestId

MARK: Final = DERIVED_MARK

OF_NO_REQUEST: Final = f"{MARK}(s[0-9]+|c[0-9]+|t|[obrd][0-9]+)$"
"""A regular expression: a step, a continuation, the end of a question's time and a record about an effect have ids that end so."""

LENGTH_MAX: Final = 1_000
"""The longest id of a record from which ids are derived unchanged; an id that a caller chooses is shorter."""

_BEGINNING: Final = 400
_HASH: Final = f"{MARK}h"
_STEP: Final = "s"
_CONTINUATION: Final = "c"
_TIMEOUT: Final = f"{MARK}t"
_END: Final = f"end{MARK}"
_OF_STEP: Final = f"{MARK}{_STEP}"


def sent_id(root: RequestId, number: int) -> RequestId:
    """Return the id of a request that a cascade sends: `order-7~~1`."""
    return RequestId(f"{_shortened(root)}{MARK}{number}")


def step_id(root: RequestId, number: int) -> RequestId:
    """Return the id of a workflow step: `order-7~~s1`."""
    first = root if len(root) <= LENGTH_MAX else _shortened(root)
    return RequestId(f"{first}{_OF_STEP}{number}")


def part_id(step: RequestId, index: int) -> RequestId:
    """Return the id of a question or a request that a workflow step sends: `order-7~~s1.0`."""
    return RequestId(f"{step}.{index}")


def continuation_id(root: RequestId) -> RequestId:
    """Return the id of the record that continues a cascade: `order-7~~c1`, and then `order-7~~c2`."""
    cascade, number = cascade_id(root), 0
    if cascade != root and root.startswith(cascade):
        number = int(root.removeprefix(f"{cascade}{MARK}{_CONTINUATION}"))
    return RequestId(f"{cascade}{MARK}{_CONTINUATION}{number + 1}")


def cascade_id(root: RequestId) -> RequestId:
    """Return the id of a cascade, under which its rest is stored; each record that continues it has the same.

    Args:
        root: The id of the first record of the cascade, or of one that continues it.
    """
    first, mark, number = root.rpartition(f"{MARK}{_CONTINUATION}")
    return RequestId(first if mark and number.isdigit() else _shortened(root))


def end_id(root: RequestId) -> RequestId:
    """Return the id of the record that ends the rest of a cascade."""
    return RequestId(f"{_END}{root}")


def ended_root(record: RequestId) -> RequestId | None:
    """Return the root of the cascade whose rest a record ends; None for another record."""
    return RequestId(record.removeprefix(_END)) if record.startswith(_END) else None


def timeout_id(question: str) -> RequestId:
    """Return the id of the record that ends the time of a question: `order-7~~s1.0~~t`."""
    return RequestId(question + _TIMEOUT)


def timed_question(record: RequestId) -> RequestId | None:
    """Return the id of the question whose time a record ends; None for another record."""
    return RequestId(record.removesuffix(_TIMEOUT)) if record.endswith(_TIMEOUT) else None


def outcome_id(effect: str, round_number: int) -> RequestId:
    """Return the id of the record with the outcome of an effect: `order-7~~1~~o1`."""
    return RequestId(f"{effect}{MARK}o{round_number}")


def beginning_id(effect: str, round_number: int) -> RequestId:
    """Return the id of the record before the call of a `once=True` effect: `order-7~~1~~b1`."""
    return RequestId(f"{effect}{MARK}b{round_number}")


def order_id(effect: str, order: str, number: int) -> RequestId:
    """Return the id of an operator's record about an effect: `order-7~~1~~r1` to retry it, `order-7~~1~~d1` to discard it."""
    return RequestId(f"{effect}{MARK}{order[0]}{number}")


_SETTLES: Final = re.compile(f"{MARK}[od][0-9]+$")


def settled_effect(record: RequestId) -> RequestId | None:
    """Return the id of the effect that a record may end; None for another record."""
    match = _SETTLES.search(record)
    return None if match is None else RequestId(record[: match.start()])


def is_question_id(request_id: RequestId) -> bool:
    """Say whether a request may be the question of a workflow step to an entity."""
    return _OF_STEP in request_id


def root_of(request_id: RequestId) -> RequestId:
    """Return the id of the request that begins the cascade to which a record belongs; a chosen id is its own root.

    Of an id that was shortened, this is the beginning of the root's id.
    """
    return RequestId(request_id.partition(MARK)[0])


def record_of(sent: RequestId) -> RequestId:
    """Return the id of the record whose cascade sends a request; empty for an id that is not derived."""
    return RequestId(sent.rpartition(MARK)[0])


def _shortened(root: str) -> str:
    """Return the id of a record, with the end of a long id replaced by a hash of the id."""
    if len(root) <= LENGTH_MAX:
        return root
    beginning = root[:_BEGINNING].split(MARK, 1)[0].rstrip(MARK[0])
    return f"{beginning}{_HASH}{blake2b(root.encode(), digest_size=16).hexdigest()}"
