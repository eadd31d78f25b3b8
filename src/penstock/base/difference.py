"""The difference of two values, element by element: `items[2].quantity` was 3 and is 4.

The values are plain data: scalars, lists, tuples and dictionaries. Two values are the same if their
encoded bytes are, so 1 differs from 1.0 and from true, and NaN equals NaN.

The time is bounded. Equal elements at both ends of two lists cost linear time. Between them, elements that
occur once in each list are matched, as in patience diff, and the rest is compared by position. After
`ELEMENTS_MAX` elements, or below `DEPTH_MAX` levels, a value is compared as a whole.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

SHOWN_MAX: Final = 100
"""Differences that are listed; the others are counted."""

ELEMENTS_MAX: Final = 100_000
"""Elements of lists and dictionaries that are compared one by one, for all attributes of an entity."""

DEPTH_MAX: Final = 16
"""Levels of lists and dictionaries that are compared element by element."""

VALUE_BYTES_MAX: Final = 10_000
"""Encoded bytes of a value that a difference repeats."""

_KEY_MAX: Final = 60
_encode: Final = msgspec.msgpack.Encoder(enc_hook=str).encode
_encode_json: Final = msgspec.json.Encoder(enc_hook=str).encode


class ElementDifference(Struct, frozen=True):
    """An element that was changed, added or removed.

    `before` and `after` are left out without such a value, or if it is very large.
    """

    path: Annotated[
        str,
        Meta(
            description="The place, such as `items[2].quantity`. An index counts in the list after the "
            "change; that of a removed element counts in the list before it.",
        ),
    ]
    kind: Literal["changed", "added", "removed"]
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET


@dataclass(slots=True)
class ElementDifferences:
    """The differences of two values.

    Attributes:
        shown: The first differences, in order.
    """

    shown: list[ElementDifference] = field(default_factory=list)
    left_out: int = 0

    @property
    def count(self) -> int:
        """The number of all differences."""
        return len(self.shown) + self.left_out


def is_same(before: Any, after: Any) -> bool:
    """Say whether two values have the same encoding."""
    return _encode(before) == _encode(after)


def attribute_differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> ElementDifferences:
    """Compare the attributes of an entity before and after a change; None if it did not exist."""
    comparison = _Comparison()
    comparison.compare_names("", before or {}, after or {}, 0)
    return comparison.differences


def element_differences(path: str, before: Any, after: Any) -> ElementDifferences:
    """Compare two values.

    Args:
        path: The name of the values, with which each path begins.
    """
    comparison = _Comparison()
    comparison.compare(path, before, after, 0)
    return comparison.differences


class _Comparison:
    """Collects the differences of two values, within a number of elements."""

    def __init__(self) -> None:
        self.differences = ElementDifferences()
        self._elements_left = ELEMENTS_MAX

    def compare(self, path: str, before: Any, after: Any, depth: int) -> None:
        """Add the differences of two values at a path."""
        if is_same(before, after):
            return
        known = self.differences.count
        if depth < DEPTH_MAX:
            if isinstance(before, dict) and isinstance(after, dict):
                self.compare_names(path, before, after, depth + 1)
            elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
                self._compare_lists(path, before, after, depth + 1)
        if self.differences.count == known:
            self._add(path, "changed", before, after)

    def compare_names(
        self, path: str, before: Mapping[Any, Any], after: Mapping[Any, Any], depth: int
    ) -> None:
        """Add the differences of two dictionaries."""
        if not self._take(len(before) + len(after)):
            return
        for name in {**before, **after}:
            inner = _member(path, name)
            if name not in after:
                self._add(inner, "removed", before[name], UNSET)
            elif name not in before:
                self._add(inner, "added", UNSET, after[name])
            else:
                self.compare(inner, before[name], after[name], depth)

    def _compare_lists(
        self, path: str, before: Sequence[Any], after: Sequence[Any], depth: int
    ) -> None:
        start, end = _equal_ends(before, after)
        former = before[start : len(before) - end]
        latter = after[start : len(after) - end]
        if not self._take(len(former) + len(latter)):
            return
        for left, right in _gaps(list(map(_encode, former)), list(map(_encode, latter))):
            both = min(len(left), len(right))
            for old, new in zip(left[:both], right[:both], strict=True):
                self.compare(f"{path}[{start + new}]", former[old], latter[new], depth)
            for old in left[both:]:
                self._add(f"{path}[{start + old}]", "removed", former[old], UNSET)
            for new in right[both:]:
                self._add(f"{path}[{start + new}]", "added", UNSET, latter[new])

    def _take(self, count: int) -> bool:
        """Take elements from those that may be compared, and say whether there were enough."""
        if count > self._elements_left:
            return False
        self._elements_left -= count
        return True

    def _add(
        self, path: str, change: Literal["changed", "added", "removed"], before: Any, after: Any
    ) -> None:
        if len(self.differences.shown) == SHOWN_MAX:
            self.differences.left_out += 1
            return
        sides = [side if _is_small(side) else UNSET for side in (before, after)]
        self.differences.shown.append(ElementDifference(path, change, *sides))


def _is_small(value: Any) -> bool:
    return value is UNSET or len(_encode(value)) <= VALUE_BYTES_MAX


def _member(path: str, name: Any) -> str:
    """Return the path of a member of a dictionary or of an attribute."""
    if isinstance(name, str) and name.isidentifier() and len(name) <= _KEY_MAX:
        return f"{path}.{name}" if path else name
    try:
        text = _encode_json(name).decode()
    except TypeError:
        text = repr(name)
    return f"{path}[{text if len(text) <= _KEY_MAX else f'{text[:_KEY_MAX]}…'}]"


def _equal_ends(before: Sequence[Any], after: Sequence[Any]) -> tuple[int, int]:
    """Return how many elements are equal at the beginning, and at the end, of two lists."""
    start, most = 0, min(len(before), len(after))
    while start < most and _encode(before[start]) == _encode(after[start]):
        start += 1
    end = 0
    while end < most - start and _encode(before[-1 - end]) == _encode(after[-1 - end]):
        end += 1
    return start, end


def _gaps(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[range, range]]:
    """Yield the parts of two lists that do not match, as ranges of indexes."""
    left = right = 0
    for old, new in [*_anchors(before, after), (len(before), len(after))]:
        while left < old and right < new and before[left] == after[right]:
            left, right = left + 1, right + 1
        end_left, end_right = old, new
        while (
            end_left > left and end_right > right and before[end_left - 1] == after[end_right - 1]
        ):
            end_left, end_right = end_left - 1, end_right - 1
        yield range(left, end_left), range(right, end_right)
        left, right = old + 1, new + 1


def _anchors(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the longest rising sequence of matches of elements that occur once in each list."""
    counts, latter = Counter(before), Counter(after)
    places = {item: index for index, item in enumerate(after) if latter[item] == 1}
    matches = [
        (index, places[item])
        for index, item in enumerate(before)
        if counts[item] == 1 and item in places
    ]
    tails: list[int] = []  # the last place of the best sequence of each length
    lasts: list[int] = []  # its match
    previous: list[int] = []
    for number, (_, place) in enumerate(matches):
        length = bisect_left(tails, place)
        previous.append(lasts[length - 1] if length else -1)
        if length == len(tails):
            tails.append(place)
            lasts.append(number)
        else:
            tails[length], lasts[length] = place, number
    chosen: list[tuple[int, int]] = []
    number = lasts[-1] if lasts else -1
    while number >= 0:
        chosen.append(matches[number])
        number = previous[number]
    return chosen[::-1]
