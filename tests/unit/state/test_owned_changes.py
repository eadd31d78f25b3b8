"""The changes of an epoch that a partition takes."""

import pyarrow as pa
import pytest

from penstock.base.ids import EntityKey, bucket_of
from penstock.state import stores
from penstock.state.partition_spec import PartitionSpec, bucket_owners

KEYS = [*(f"k{number}" for number in range(60)), "ü", "€/1", "𝄞", "\ufffd"]
STATES = [None if number % 7 == 3 else f"state {key}".encode() for number, key in enumerate(KEYS)]


def rows_of(keys: list[str], states: list[bytes | None]) -> pa.Table:
    return pa.table(
        {
            "entity": pa.array(["Item"] * len(keys), pa.string()),
            "key": pa.array(keys, pa.string()),
            "state": pa.array(states, pa.binary()),
        }
    )


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_few_changes_are_divided_as_many_are(partitions: int) -> None:
    """Whether rows become objects before or after they are divided: each partition has its keys, in the order of bytes."""
    rows, owners = rows_of(KEYS, STATES), bucket_owners(partitions)
    expected = {EntityKey(f"Item/{key}"): state for key, state in zip(KEYS, STATES, strict=True)}
    shares = stores._divided([rows], partitions)
    assert len(shares) == partitions
    for partition, few in enumerate(shares):
        many = stores._owned_changes([rows], PartitionSpec(partition, partitions))
        assert few.raw_keys == many.raw_keys == sorted(few.raw_keys)
        assert few.states == many.states
        assert dict(few) == {
            key: state for key, state in expected.items() if owners[bucket_of(key)] == partition
        }


def test_no_changes_are_no_changes() -> None:
    """An epoch without changes has none for any partition."""
    nothing = rows_of([], [])
    assert list(stores._owned_changes([nothing], PartitionSpec(1, 2))) == []
    assert [list(share) for share in stores._divided([nothing], 2)] == [[], []]
