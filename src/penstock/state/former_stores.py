"""Former stores: the stores of another number of partitions, which no epoch uses any more.

A process may still read them at the epoch at which it has opened them. So a store is deleted when no
process has it open.
"""

from pathlib import Path

from penstock.state import environment as environments
from penstock.state.partition_spec import PartitionSpec, name_of


def remove_former_stores(directory: Path, partitions: int) -> list[str]:
    """Delete the stores of other numbers of partitions, except those that a process has open.

    Args:
        partitions: The number of partitions in use.

    Returns:
        The names of the stores that are deleted.

    Raises:
        StateUnavailable: A store cannot be deleted.
    """
    used = {name_of(PartitionSpec(number, partitions)) for number in range(partitions)}
    return sorted(
        path.name
        for path in directory.glob("partition-*[0-9]")
        if path.name not in used and environments.discard_unused(path)
    )
