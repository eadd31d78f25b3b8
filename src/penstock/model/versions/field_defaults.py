"""Defaults of the fields that records have got since an earlier version of a class.

A row of an earlier version lacks such a field, and gets the default that it had when its version was deployed
(`stored_class.learn`). So a version keeps these defaults.
"""

from collections.abc import Collection
from contextlib import suppress
from functools import partial

from penstock.base.record import RecordKind, default_of, fields_of, kind_of
from penstock.model.entity_type import EntityType
from penstock.model.shape import Shape, field_place, records_of
from penstock.model.versions.stored_default import stored_default


def field_defaults(declared: EntityType, earlier: Collection[Shape]) -> dict[str, bytes]:
    """Return the defaults of the fields that rows of earlier versions may lack.

    Args:
        earlier: The shapes of its earlier versions.

    Returns:
        The encoded defaults, by the place of the field in the lines of the shape: `Depot.size`.
    """
    stored = [{line.partition(": ")[0] for line in shape.lines} for shape in earlier]
    defaults = {}
    for label, record in records_of(declared.key_annotation, declared.attributes).items():
        in_a_row = kind_of(record) is RecordKind.NAMED_TUPLE
        for index, (member, annotation) in enumerate(fields_of(record)):
            place = field_place(label, member.wire, index if in_a_row else None)
            if not member.has_default or member.is_optional or all(place in had for had in stored):
                continue
            with suppress(ValueError):  # it cannot be stored, so no row may lack the field
                make = partial(default_of, record, member.name)
                defaults[place] = stored_default(make, annotation)
    return defaults
