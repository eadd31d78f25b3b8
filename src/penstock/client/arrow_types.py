"""Arrow types of a result that Python shows as people write the values.

SQL gives every `Decimal` attribute 12 places, so that Arrow would return 12.500000000000. Only programs
that ask for Arrow tables load pyarrow, so it is imported in the functions.
"""

from typing import TYPE_CHECKING, Final

from penstock.base.decimals import DECIMAL_PLACES

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_US: Final = 86_400_000_000


def python_types(table: "pa.Table") -> "pa.Table":
    """Return a table with equal values, whose types Python shows well.

    A column of decimals has as many places as its values need. A column of intervals without months is
    a column of durations.
    """
    for index, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        converted = _durations(_short_decimals(column))
        if converted is not column:
            table = table.set_column(index, field.with_type(converted.type), converted)
    return table


def _short_decimals(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column whose decimals have as few places as hold every value."""
    import pyarrow as pa  # noqa: PLC0415

    places, column_type = 0, _with_places(column.type, 0)
    while column_type != column.type:
        try:
            return column.cast(column_type)
        except pa.ArrowInvalid:  # a value has more places
            places += 1
            column_type = _with_places(column.type, places)
    return column


def _with_places(column_type: "pa.DataType", places: int) -> "pa.DataType":
    """Return a type in which the decimals with the places of an attribute have `places` at most."""
    import pyarrow as pa  # noqa: PLC0415

    def inside(field: "pa.Field") -> "pa.Field":
        return field.with_type(_with_places(field.type, places))

    if pa.types.is_decimal(column_type) and column_type.scale >= DECIMAL_PLACES:
        column_type = pa.decimal128(column_type.precision, min(places, column_type.scale))
    elif pa.types.is_list(column_type):
        column_type = pa.list_(inside(column_type.value_field))
    elif pa.types.is_fixed_size_list(column_type):
        column_type = pa.list_(inside(column_type.value_field), column_type.list_size)
    elif pa.types.is_struct(column_type):
        column_type = pa.struct(map(inside, column_type))
    elif pa.types.is_map(column_type):
        column_type = pa.map_(inside(column_type.key_field), inside(column_type.item_field))
    return column_type


def _durations(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column of intervals as durations, unless one has months; other columns unchanged."""
    import pyarrow as pa  # noqa: PLC0415

    if not pa.types.is_interval(column.type):
        return column
    values = column.to_pylist()
    if any(value is not None and value.months for value in values):
        return column
    lengths = [
        None if value is None else value.days * _DAY_US + value.nanoseconds // 1_000
        for value in values
    ]
    return pa.chunked_array([pa.array(lengths, pa.int64()).cast(pa.duration("us"))])
