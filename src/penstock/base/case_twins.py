"""Names that differ only in case: SQL reads both as the same name, so an application cannot have both."""

from collections.abc import Iterable


def case_twins(names: Iterable[str], others: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return each name that differs only in case from an earlier name: the earlier name, and the later.

    Args:
        names: The names, in order.
    """
    known: dict[str, str] = {other.casefold(): other for other in others}
    twins = []
    for name in names:
        earlier = known.setdefault(name.casefold(), name)
        if earlier != name:
            twins.append((earlier, name))
    return twins
