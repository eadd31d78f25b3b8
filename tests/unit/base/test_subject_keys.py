"""Keys of subjects: every subject has one, a destroyed key is gone, and all others stay."""

import pytest

from penstock.base.subject_keys import KeyTree, SubjectKeys, new_tree
from penstock.errors import Corrupt, Erased

TREE = new_tree(b"a secret")
NAMES = [f"User/{number}" for number in range(40)]


def holder(tree: KeyTree) -> SubjectKeys:
    return SubjectKeys(lambda: tree)


def test_equal_data_have_equal_bytes_within_one_subject_and_context() -> None:
    """Encryption is deterministic, and differs between subjects and contexts."""
    keys = holder(TREE)
    once = keys.seal("User/ada", b"data", b"row")
    assert keys.seal("User/ada", b"data", b"row") == once
    assert keys.seal("User/bob", b"data", b"row") != once
    assert keys.seal("User/ada", b"data", b"reply") != once
    assert keys.unseal("User/ada", once, b"row") == b"data"


def test_destroyed_keys_are_gone_and_all_others_stay() -> None:
    """After each of several erasures, exactly the erased subjects cannot be read."""
    sealed = {name: holder(TREE).seal(name, name.encode(), b"row") for name in NAMES}
    tree = TREE
    for count, name in enumerate(NAMES[:10], 1):
        tree = tree.without(name, 0)
        keys = holder(tree)
        for erased in NAMES[:count]:
            with pytest.raises(Erased, match=erased):
                keys.unseal(erased, sealed[erased], b"row")
        assert all(
            keys.unseal(other, sealed[other], b"row") == other.encode() for other in NAMES[count:]
        )


def test_erased_name_begins_again_with_another_key() -> None:
    """A person who comes back is readable; what was stored before stays erased."""
    before = holder(TREE).seal("User/ada", b"old", b"row")
    tree = TREE.without("User/ada", 0)
    keys = holder(tree)
    again = keys.seal("User/ada", b"new", b"row")
    assert keys.unseal("User/ada", again, b"row") == b"new"
    with pytest.raises(Erased):
        keys.unseal("User/ada", before, b"row")
    assert tree.without("User/ada", 0) is tree
    assert tree.without("User/ada", 1).generation("User/ada") == 2


def test_changed_bytes_are_noticed() -> None:
    """A flipped bit, another subject, another context and other keys are refused."""
    keys = holder(TREE)
    sealed = keys.seal("User/ada", b"data", b"row")
    flipped = bytes([*sealed[:-1], sealed[-1] ^ 1])
    for held, subject, data, context in (
        (keys, "User/ada", flipped, b"row"),
        (keys, "User/bob", sealed, b"row"),
        (keys, "User/ada", sealed, b"reply"),
        (holder(new_tree(b"another secret")), "User/ada", sealed, b"row"),
    ):
        with pytest.raises(Corrupt, match="other keys"):
            held.unseal(subject, data, context)
