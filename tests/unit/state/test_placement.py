"""Where partitions are held: as many different hosts as asked for, evenly, and with few moves when a host joins or leaves."""

from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.placement import held_by, placed

PARTITIONS = st.integers(1, 64)
COPIES = st.integers(1, 4)
HOSTS = st.lists(st.text(st.characters(codec="ascii"), max_size=4), unique=True, max_size=8)


@settings(max_examples=50)
@given(HOSTS, PARTITIONS, COPIES)
def test_each_partition_is_on_so_many_hosts(hosts: list[str], partitions: int, copies: int) -> None:
    """They are different ones, all if there are fewer; the order of the names does not matter."""
    chosen = placed(tuple(hosts), partitions, copies)
    assert [len(set(each)) for each in chosen] == [min(copies, len(hosts))] * partitions
    assert chosen == placed(tuple(reversed(hosts)), partitions, copies)
    held = {host: held_by(host, hosts, partitions, copies) for host in hosts}
    assert all(partition in held[host] for partition, each in enumerate(chosen) for host in each)
    assert sum(map(len, held.values())) == partitions * min(copies, len(hosts))


def test_hosts_hold_even_parts_and_a_join_moves_few() -> None:
    """A host that joins gets its part, and the others change little between themselves; so does one that leaves."""
    for hosts in range(3, 9):
        names = tuple(f"host-{number}" for number in range(hosts))
        before, after = (placed(some, 64, 2) for some in (names[:-1], names))
        even = 64 * 2 / hosts
        loads = Counter(host for each in after for host in each)
        assert max(loads.values()) <= ceil(even) + 2
        moved = sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))
        assert moved <= 2 * even
