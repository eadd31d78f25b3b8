"""The effect of an import: which of its rows change the state, whether a driver or the serial runtime executes it."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from penstock.base.ids import EntityKey

Existing = Literal["refuse", "replace", "skip"]
"""The treatment of a row whose entity exists: the whole import is refused, or the row counts, or the entity stays."""

NAMED_MAX: Final = 20
"""The most keys in a refusal."""


class ImportResult(msgspec.Struct, frozen=True):
    """The effect of an import.

    Attributes:
        entity: The class.
        created: How many entities are new.
        replaced: How many entities got another state.
        unchanged: How many rows changed nothing: their entities were kept, or had this state already.
        epoch: The epoch that has them; None if no driver has executed the order yet, or if it was a trial.
    """

    entity: str
    created: int
    replaced: int = 0
    unchanged: int = 0
    epoch: int | None = None


class ImportedRows(NamedTuple):
    """The effect of some rows.

    Attributes:
        texts: The keys that the rows change.
        states: Their states.
        created: How many entities are new.
        replaced: How many entities get another state.
        unchanged: How many rows change nothing: their entities are kept, or have this state already.
        taken: How many entities exist, where that is refused.
        named: The first of these.
    """

    texts: list[str]
    states: list[bytes]
    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    taken: int = 0
    named: tuple[str, ...] = ()


def imported(
    prefix: str,
    rows: tuple[Sequence[str], Sequence[bytes]],
    read: Callable[[EntityKey], bytes | None],
    existing: Existing,
) -> ImportedRows:
    """Return the effect of rows on a state.

    Args:
        prefix: The beginning of the keys of the class.
        rows: The texts of the keys, and the states.
        read: Returns the state of an entity before; None if it does not exist.
    """
    texts: list[str] = []
    states: list[bytes] = []
    replaced = unchanged = 0
    taken: list[str] = []
    for text, state in zip(*rows, strict=True):
        before = read(EntityKey(prefix + text))
        if before is not None:
            if existing == "refuse":
                taken.append(text)
                continue
            if existing == "skip" or before == state:
                unchanged += 1
                continue
            replaced += 1
        texts.append(text)
        states.append(state)
    created, named = len(texts) - replaced, tuple(taken[:NAMED_MAX])
    return ImportedRows(texts, states, created, replaced, unchanged, len(taken), named)


def result_of(entity: str, every: Sequence[ImportedRows], epoch: int) -> ImportResult:
    """Return the result of the effects of all rows, none of which is refused."""
    return ImportResult(
        entity,
        sum(each.created for each in every),
        sum(each.replaced for each in every),
        sum(each.unchanged for each in every),
        int(epoch),
    )


def refusal_of(entity: str, taken: int, named: Sequence[str]) -> str:
    """Return the message about entities that exist, where that is refused."""
    shown = ", ".join(sorted(named)[:NAMED_MAX])
    more = ", …" if taken > min(len(named), NAMED_MAX) else ""
    return (
        f"{taken} of the entities exist in {entity}: {shown}{more}; nothing is imported. --existing replace gives them the states "
        "of the rows, --existing skip keeps them"
    )
