"""The fields of records in attributes, so that a reader of the plan knows the references inside of them."""

import typing

from penstock.base.record import fields_of, is_record
from penstock.dataflow.analysis.type_text import type_text
from penstock.dataflow.graph import Attribute, Record
from penstock.model.application import App


def records_of(app: App) -> tuple[Record, ...]:
    """Return the records that attributes hold, also inside of other types; of two with one name, the first."""
    records: dict[str, Record] = {}
    left = [hint for entity in app.entities.values() for hint in entity.attributes.values()]
    while left:
        hint = left.pop(0)
        left += typing.get_args(hint)
        if not is_record(hint) or type_text(hint) in records:
            continue
        fields = [(member.wire, field) for member, field in fields_of(hint)]
        shown = tuple(Attribute(name, type_text(field)) for name, field in fields)
        records[type_text(hint)] = Record(type_text(hint), shown)
        left += [field for _, field in fields]
    return tuple(records.values())
