"""JSON of stored values: every key has a text, and a value without unusual keys is not walked through."""

from typing import Any

import msgspec

from penstock.base.json_keys import as_text, json_bytes
from penstock.cli.output import json_line

encode = msgspec.json.Encoder(enc_hook=as_text).encode


def test_keys_that_json_lacks_become_text() -> None:
    """A key that is not text becomes its own JSON, at any depth."""
    value = [{("a", 1): 2, None: {True: {("é", (2,))}}}]
    assert json_line(value) == json_bytes(encode, value).decode()
    assert json_line(value) == '[{"[\\"a\\",1]":2,"null":{"true":[["é",[2]]]}}]'


def test_a_deeply_nested_value_is_encoded() -> None:
    """What can be stored can be shown."""
    value: Any = None
    for _ in range(900):
        value = [value]
    assert json_bytes(encode, value) == b"[" * 900 + b"null" + b"]" * 900
