"""Names that differ only in case: SQL reads both as the same name, so an application has only one of them."""

from collections.abc import Iterable


def case_twins(names: Iterable[str], others: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return each name that differs only in case from an earlier one, or from one of some others: the earlier, the later.

    Args:
        names: The names, in order.
        others: Names that come before them.
    """
    known: dict[str, str] = {other.casefold(): other for other in others}
    twins = []
    for name in names:
        earlier = known.setdefault(name.casefold(), name)
        if earlier != name:
            twins.append((earlier, name))
    return twins
