"""The declaration of a stream of changes: what is refused, and the ids of its atoms."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock import App, Change, DefinitionError, RequestError, changes, flow, postgres, sqlite
from penstock.model.streams.change_stream import (
    SourcePosition,
    atom_id,
    position_in,
    stream_of_atom,
)
from penstock.testing import Kit


@dataclass
class User:
    id: int
    name: str


@dataclass
class Checked:
    id: int

    def __post_init__(self) -> None:
        self.id += 1


class Pair(NamedTuple):
    id: int


class Shop(msgspec.Struct, tag=True):
    id: int


class Till(msgspec.Struct, tag=True):
    id: int


USERS = {"public.users": User}


@pytest.mark.parametrize(
    ("source", "tables", "told"),
    [
        (sqlite(), USERS, "its source is TargetChoice(kind='sqlite'"),
        (postgres(schema="x"), USERS, "write the schema before the table"),
        (postgres(), {}, "its tables are {}"),
        (postgres(), {"users": User}, "'users' cannot name a table"),
        (postgres(), {"public.users": int}, "the rows of public.users are <class 'int'>"),
        (postgres(), {"public.users": Pair}, "name a dataclass, a TypedDict or a Struct"),
        (postgres(), {"public.users": Checked}, "Checked, for the rows of public.users, runs code"),
    ],
)
def test_a_wrong_declaration_is_refused(source: Any, tables: Any, told: str) -> None:
    """The message has the place, the stream and the remedy."""
    with pytest.raises(DefinitionError) as refused:
        App("crm", changes("crm", source, tables))
    assert told in str(refused.value)


def test_several_tables_are_one_stream() -> None:
    """The record of each row is that of its table."""
    crm = changes("crm", postgres(), {"public.shops": Shop, "public.tills": Till})
    kit = Kit(App("crm", crm))
    kit.append(crm, [change("public.tills", Till(7))])
    assert kit.atoms(crm)[0][0].row == Till(7)


def change(table: str, row: Any) -> Change[Any]:
    return Change("insert", table, "7", row, None, 1, datetime(2026, 1, 31, tzinfo=UTC))


def test_only_its_process_appends() -> None:
    """No caller appends to it; the message says so, and names the streams that take appends."""
    crm = changes("crm", postgres(), USERS)
    app = App("crm", flow("copy", crm).sink("copied"))
    with pytest.raises(RequestError, match="it has the changes of a database"):
        app.open_stream("crm")


def test_ids_tell_the_position() -> None:
    """An id is read as it was written, and no other id is one of them."""
    position = SourcePosition(3, 0x16B3748, 500, is_whole=False)
    request_id = atom_id("crm", position)
    assert request_id == "capture~~crm~~3.16B3748.500.part"
    assert stream_of_atom(request_id) == ("crm", position.text())
    assert position_in(position.text()) == position
    assert stream_of_atom("tick~~x~~y") is None
