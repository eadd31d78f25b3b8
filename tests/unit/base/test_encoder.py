"""The encoder for values of any size writes what msgspec's own encoder writes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.encoder import Encoder

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(plain)
def test_it_writes_what_msgspec_writes(value: Any) -> None:
    """Small values take another way than large ones, with the same bytes."""
    assert Encoder().encode(value) == msgspec.msgpack.encode(value)


@pytest.mark.parametrize("value", ["x" * 100_000, bytes(100_000), ["y" * 100_000] * 3])
def test_it_writes_large_values(value: Any) -> None:
    """Texts, bytes and lists of a size that takes the other way."""
    assert Encoder().encode(value) == msgspec.msgpack.encode(value)


def test_a_type_without_encoding_is_refused_by_the_hook() -> None:
    """The hook gets the value, also inside of others."""
    assert Encoder(lambda value: 7).encode([object()]) == b"\x91\x07"
    with pytest.raises(TypeError):
        Encoder().encode(object())
