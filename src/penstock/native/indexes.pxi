"""Indexes: the values of a row at some places, and the pages with sorted entries; see `penstock.model.index` and `index_rows`."""

cdef enum:
    BY_PYTHON = 0
    BY_TEXT = 1
    BY_INT = 2

VALUE_WAYS = {"python": BY_PYTHON, "text": BY_TEXT, "int": BY_INT}
"""How the bytes of a value are made: of a text, or of the key of a reference; of a number; or by Python."""


cdef Py_ssize_t _row_width(Reader *reader, bytes row) except -2:
    """Begin to read a row; return the number of its values, -1 if it is none."""
    reader.at = <const uint8_t *>PyBytes_AS_STRING(row)
    reader.end = reader.at + PyBytes_GET_SIZE(row)
    reader.instances = NULL
    return _length(reader, 0x90, 0x9F, 0xDC, 2)


cdef bint _has_same(bytes row, bytes other, tuple places) except -1:
    """Say whether two rows surely have the same bytes at some places, which ascend."""
    cdef Reader first, second
    cdef const uint8_t *begin
    cdef const uint8_t *other_begin
    cdef Py_ssize_t place = 0, wanted, size
    cdef Py_ssize_t width = _row_width(&first, row), other_width = _row_width(&second, other)
    for each in places:
        wanted = <Py_ssize_t>each
        if wanted >= width or wanted >= other_width:
            return False
        while True:
            begin, other_begin = first.at, second.at
            if not _skip(&first, 0) or not _skip(&second, 0):
                return False
            place += 1
            if place > wanted:
                break
        size = first.at - begin
        if second.at - other_begin != size or memcmp(begin, other_begin, size):
            return False
    return True


cdef object _ordered_text(Reader *reader, Py_ssize_t most):
    """Return the bytes of a text; None if Python must make them."""
    cdef Py_ssize_t index, size = _length(reader, 0xA0, 0xBF, 0xD9, 1)
    cdef uint8_t *into
    if size < 0 or size > most or not _has(reader, size):
        return None
    for index in range(size):
        if reader.at[index] == 0:
            return None
    made = PyBytes_FromStringAndSize(NULL, size + 3)
    into = <uint8_t *>PyBytes_AS_STRING(made)
    into[0] = 1
    memcpy(into + 1, reader.at, size)
    into[size + 1] = into[size + 2] = 0
    reader.at += size
    return made


cdef object _ordered_int(Reader *reader):
    """Return the bytes of a number of less than 64 bits; None if Python must make them."""
    cdef uint8_t made[10]
    cdef uint64_t rest
    cdef int size = 0
    cdef int64_t value
    number = _read_int(reader)
    if number is None or not -0x7FFFFFFFFFFFFFFF <= number <= 0x7FFFFFFFFFFFFFFF:
        return None
    value = number
    rest = <uint64_t>(value if value >= 0 else -value)
    while rest:
        rest >>= 8
        size += 1
    made[0] = 1
    made[1] = <uint8_t>(0x80 + size if value >= 0 else 0x80 - size)
    if size:
        penstock_store_be(made + 2, <uint64_t>value, size)
    return PyBytes_FromStringAndSize(<char *>made, 2 + size)


def same_at(row, other, places):
    """Say whether two rows surely have the same values at places, which ascend; see `penstock.model.index`."""
    return type(row) is bytes and type(other) is bytes and _has_same(row, other, places)


def values_at(row, places, ways, most):
    """Return the bytes of the values of a row at places, which ascend; None if Python must make them."""
    cdef Reader reader
    cdef Py_ssize_t place = 0, wanted, width, number = 0
    cdef list made = []
    if type(row) is not bytes or type(places) is not tuple or type(ways) is not bytes or len(<bytes>ways) != len(<tuple>places):
        return None
    width = _row_width(&reader, <bytes>row)
    for each in <tuple>places:
        wanted = <Py_ssize_t>each
        if wanted >= width:
            return None
        while place < wanted:
            if not _skip(&reader, 0):
                return None
            place += 1
        if not _has(&reader, 1):
            return None
        if reader.at[0] == 0xC0:
            reader.at += 1
            value = b"\x00"
        elif (<bytes>ways)[number] == BY_TEXT:
            value = _ordered_text(&reader, most)
        elif (<bytes>ways)[number] == BY_INT:
            value = _ordered_int(&reader)
        else:
            return None
        if value is None:
            return None
        made.append(value)
        place += 1
        number += 1
    return made


cdef bint _next_entry(Reader *reader, const uint8_t **begin, Py_ssize_t *size) except -1:
    """Read the next entry of a page; return whether there is one."""
    if not _has(reader, 1) or not 0xC4 <= reader.at[0] <= 0xC6:
        return False
    size[0] = _length(reader, 1, 0, 0xC4, 1)
    if size[0] < 0 or not _has(reader, size[0]):
        return False
    begin[0] = reader.at
    reader.at += size[0]
    return True


cdef int _compared(const uint8_t *left, Py_ssize_t size, const uint8_t *right, Py_ssize_t other_size) noexcept:
    cdef int order = memcmp(left, right, min(size, other_size))
    if order:
        return order
    return (size > other_size) - (size < other_size)


def branch_of(row, bytes entry):
    """Return the number of the page to which an inner page leads, -1 for a leaf; None if Python must read it."""
    cdef Reader reader
    cdef const uint8_t *begin
    cdef Py_ssize_t size, width, index
    if type(row) is not bytes:
        return None
    width = _row_width(&reader, <bytes>row)
    if width < 1 or not _has(&reader, 1):
        return None
    if 0xC4 <= reader.at[0] <= 0xC6:
        return -1
    if _read_int(&reader) is None or width < 2:
        return None
    number = _read_int(&reader)
    for index in range((width - 2) // 2):
        if not _next_entry(&reader, &begin, &size):
            return None
        if _compared(begin, size, <const uint8_t *>PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry)) > 0:
            break
        number = _read_int(&reader)
    return number


cdef object _spliced(bytes row, Py_ssize_t start, Py_ssize_t count, Py_ssize_t cut, Py_ssize_t gone, bytes added):
    """Return a leaf with another number of entries: some bytes are gone, and an entry is added in their place.

    Args:
        start: Where its entries begin.
        count: The new number of entries.
        cut: Where the change is.
    """
    cdef Py_ssize_t head = 1 if count < 16 else 3, size = PyBytes_GET_SIZE(added), length = PyBytes_GET_SIZE(row)
    cdef Py_ssize_t wide = 0 if size == 0 else 2 if size < 256 else 3
    cdef const char *old = PyBytes_AS_STRING(row)
    cdef uint8_t *into
    made = PyBytes_FromStringAndSize(NULL, head + (length - start) - gone + wide + size)
    into = <uint8_t *>PyBytes_AS_STRING(made)
    if head == 1:
        into[0] = <uint8_t>(0x90 + count)
    else:
        into[0] = 0xDC
        penstock_store_be(into + 1, count, 2)
    into += head
    memcpy(into, old + start, cut - start)
    into += cut - start
    if wide == 2:
        into[0], into[1] = 0xC4, <uint8_t>size
    elif wide == 3:
        into[0] = 0xC5
        penstock_store_be(into + 1, size, 2)
    memcpy(into + wide, PyBytes_AS_STRING(added), size)
    memcpy(into + wide + size, old + cut + gone, length - cut - gone)
    return made


def change_leaf(dict rows, dict former, dict changed, read, name, bytes entry, Py_ssize_t most, Py_ssize_t most_bytes, bint adds):
    """Add an entry to its leaf, or remove it there; return False, without a change, where Python must do it.

    Args:
        rows: The rows of the pages that were read or changed, by name; it gets those that are read.
        former: The same rows as they were read.
        changed: Gets the name of the leaf.
        name: The name of the root; another page has a number behind it.
        most: The most entries of a leaf.
        most_bytes: The most bytes of its entries.
    """
    page = name
    while True:
        if page in rows:
            row = rows[page]
        else:
            row = read(page)
            rows[page] = former[page] = row
        branch = branch_of(row, entry)
        if branch is None:
            return False
        if branch < 0:
            break
        page = f"{name}#{branch}"
    made = _changed_leaf(row, entry, most, most_bytes, adds)
    if made is None:
        return False
    rows[page] = made
    changed[page] = None
    return True


cdef object _changed_leaf(object row, bytes entry, Py_ssize_t most, Py_ssize_t most_bytes, bint adds):
    cdef Reader reader
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef const uint8_t *begin
    cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(entry)
    cdef Py_ssize_t size, width, index, gone = 0, cut = -1, whole = PyBytes_GET_SIZE(entry)
    cdef Py_ssize_t wanted_size = PyBytes_GET_SIZE(entry)
    cdef int order
    if type(row) is not bytes or not 0 < wanted_size < 65536:
        return None
    width = _row_width(&reader, <bytes>row)
    if width < (1 if adds else 2) or adds and width >= most:
        return None
    start = reader.at
    for index in range(width):
        at = reader.at
        if not _next_entry(&reader, &begin, &size):
            return None
        whole += size
        order = _compared(begin, size, wanted, wanted_size)
        if order >= 0 and cut < 0:
            if (order == 0) == adds:
                return None
            cut = at - <const uint8_t *>PyBytes_AS_STRING(row)
            gone = 0 if adds else reader.at - at
    if reader.at != reader.end or adds and whole > most_bytes or not adds and cut < 0:
        return None
    if cut < 0:
        cut = PyBytes_GET_SIZE(row)
    return _spliced(
        <bytes>row, start - <const uint8_t *>PyBytes_AS_STRING(row), width + (1 if adds else -1), cut, gone, entry if adds else b""
    )
