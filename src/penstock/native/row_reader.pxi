"""Rows to values: each step checks that the bytes are there, and of the expected type."""

cdef struct Reader:  # a place in a row
    const uint8_t *at
    const uint8_t *end
    PyObject *instances  # the references of the transaction, which the caller holds


cdef inline bint _has(Reader *reader, Py_ssize_t size):
    return reader.end - reader.at >= size


cdef Py_ssize_t _length(Reader *reader, uint8_t fix, uint8_t fix_max, uint8_t first_wide, int widths) except -2:
    """Return the length in a head, or -1 if the head is of another type.

    `fix` and `fix_max` are the heads with the length in themselves; `widths` is the number of bytes of the first wide head.
    """
    cdef uint8_t head
    cdef int width
    cdef uint64_t length
    if not _has(reader, 1):
        return -1
    head = reader.at[0]
    if fix <= head <= fix_max:
        reader.at += 1
        return head - fix
    if head < first_wide:
        return -1
    width = head - first_wide
    if width > 2:
        return -1
    width = widths << width
    if width > 4 or not _has(reader, 1 + width):
        return -1
    length = penstock_load_be(reader.at + 1, width)
    reader.at += 1 + width
    return <Py_ssize_t>length


cdef object _read_int(Reader *reader):
    cdef uint8_t head
    cdef int width
    cdef uint64_t value
    if not _has(reader, 1):
        return None
    head = reader.at[0]
    if head < 0x80 or head >= 0xE0:
        reader.at += 1
        return <int>(head if head < 0x80 else head - 0x100)
    if not 0xCC <= head <= 0xD3:
        return None
    width = 1 << ((head - 0xCC) & 3)
    if not _has(reader, 1 + width):
        return None
    value = penstock_load_be(reader.at + 1, width)
    reader.at += 1 + width
    if head < 0xD0:
        return value
    if width < 8 and value >> (8 * width - 1):
        value -= <uint64_t>1 << (8 * width)
    return <int64_t>value


cdef object _read_text(Reader *reader):
    cdef Py_ssize_t size = _length(reader, 0xA0, 0xBF, 0xD9, 1)
    if size < 0 or not _has(reader, size):
        return None
    try:
        text = PyUnicode_DecodeUTF8(<const char *>reader.at, size, NULL)
    except UnicodeDecodeError:
        return None
    reader.at += size
    return text


cdef object _read_float(Reader *reader):
    cdef uint64_t bits
    cdef double value
    if not _has(reader, 9) or reader.at[0] != 0xCB:
        return None
    bits = penstock_load_be(reader.at + 1, 8)
    memcpy(&value, &bits, 8)
    reader.at += 9
    return value


cdef object _read_bytes(Reader *reader):
    cdef Py_ssize_t size
    if not _has(reader, 1) or not 0xC4 <= reader.at[0] <= 0xC6:
        return None
    size = _length(reader, 1, 0, 0xC4, 1)
    if size < 0 or not _has(reader, size):
        return None
    data = PyBytes_FromStringAndSize(<const char *>reader.at, size)
    reader.at += size
    return data


cdef bint _read_items(Reader *reader, Node node, Py_ssize_t size, list into) except -1:
    """Append the items of an array; return whether all fit."""
    cdef Node item = <Node>node.inside[0]
    cdef Py_ssize_t index
    for index in range(size):
        value = _read(reader, item)
        if value is _FALLBACK:
            return False
        PyList_Append(into, value)
    return True


cdef object _read_array(Reader *reader, Node node):
    """Return a list, a set or a tuple."""
    cdef Py_ssize_t size = _length(reader, 0x90, 0x9F, 0xDC, 2)
    cdef list items
    cdef Py_ssize_t index
    if size < 0 or not _has(reader, size):  # each item has a byte at least
        return _FALLBACK
    if node.kind == TUPLE or node.kind == NAMED:
        if size != PyTuple_GET_SIZE(node.inside):
            return _FALLBACK
        items = []
        for index in range(size):
            value = _read(reader, <Node>node.inside[index])
            if value is _FALLBACK:
                return _FALLBACK
            items.append(value)
        if node.kind == TUPLE:
            return tuple(items)
        return penstock_new_tuple(<PyTypeObject *>node.record.cls, tuple(items))
    items = []
    if not _read_items(reader, node, size, items):
        return _FALLBACK
    if node.kind == LIST:
        return items
    if node.kind == ARRAY:
        return tuple(items)
    found = set()
    for value in items:  # in their order, because it decides the order of iteration
        found.add(value)
    return found if node.kind == SET else _frozen(items)


cdef object _frozen(list items):
    return frozenset(items)


cdef object _read_map(Reader *reader, Node node):
    cdef Py_ssize_t size = _length(reader, 0x80, 0x8F, 0xDE, 2)
    cdef dict made = {}
    cdef Py_ssize_t index
    if size < 0 or not _has(reader, 2 * size):
        return _FALLBACK
    for index in range(size):
        name = _read(reader, <Node>node.inside[0])
        if name is _FALLBACK:
            return _FALLBACK
        value = _read(reader, <Node>node.inside[1])
        if value is _FALLBACK:
            return _FALLBACK
        made[name] = value
    return made


cdef object _read_record(Reader *reader, Node node):
    """Return a record whose map has its fields in their order, as they are written."""
    cdef Record record = node.record
    cdef Py_ssize_t size = _length(reader, 0x80, 0x8F, 0xDE, 2) - record.extra
    cdef Py_ssize_t index, width = PyTuple_GET_SIZE(record.names)
    cdef bint is_dict = record.style == STYLE_DICT
    cdef dict named = {}
    cdef object made = None
    if size < 0 or size > width or not (is_dict or size == width and record.is_intact()):
        return _FALLBACK
    if record.extra and not _read_head(reader, record.tag):
        return _FALLBACK
    if record.style == STYLE_OBJECT:
        made = penstock_new_object(<PyTypeObject *>record.cls, _NO_ARGUMENTS)
    for index in range(width):
        if not _read_head(reader, <bytes>record.heads[index]):
            if record.may_lack[index] is True:
                continue
            return _FALLBACK
        value = _read(reader, <Node>node.inside[index])
        if value is _FALLBACK:
            return _FALLBACK
        size -= 1
        if made is None:
            PyDict_SetItem(named, <str>record.names[index], value)
        else:
            PyObject_GenericSetAttr(made, <str>record.names[index], value)
    if size != 0:
        return _FALLBACK
    if record.style == STYLE_STRUCT:
        return PyObject_Call(record.cls, _NO_ARGUMENTS, named)
    return named if is_dict else made


cdef bint _read_head(Reader *reader, bytes head) except -1:
    """Read certain bytes; return whether they come next."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(head)
    if not _has(reader, size) or memcmp(reader.at, PyBytes_AS_STRING(head), size):
        return False
    reader.at += size
    return True


cdef object _read_any(Reader *reader, int depth):
    """Return a value of no declared type: what MessagePack has; maps have texts as names."""
    cdef uint8_t head
    cdef Py_ssize_t index, size
    cdef object value = None
    if not _has(reader, 1) or depth > ANY_DEPTH_MAX:
        return _FALLBACK
    head = reader.at[0]
    if head == 0xC0:
        reader.at += 1
        return None
    if head == 0xC2 or head == 0xC3:
        reader.at += 1
        return head == 0xC3
    if head < 0x80 or head >= 0xE0 or 0xCC <= head <= 0xD3:
        value = _read_int(reader)
    elif 0xA0 <= head <= 0xBF or 0xD9 <= head <= 0xDB:
        value = _read_text(reader)
    elif head == 0xCB:
        value = _read_float(reader)
    elif 0xC4 <= head <= 0xC6:
        value = _read_bytes(reader)
    elif 0x90 <= head <= 0x9F or 0xDC <= head <= 0xDD:
        return _read_any_array(reader, depth + 1)
    elif 0x80 <= head <= 0x8F or 0xDE <= head <= 0xDF:
        return _read_any_map(reader, depth + 1)
    return _FALLBACK if value is None else value


cdef object _read_any_array(Reader *reader, int depth):
    cdef Py_ssize_t index, size = _length(reader, 0x90, 0x9F, 0xDC, 2)
    cdef list items = []
    if size < 0 or not _has(reader, size):
        return _FALLBACK
    for index in range(size):
        value = _read_any(reader, depth)
        if value is _FALLBACK:
            return _FALLBACK
        PyList_Append(items, value)
    return items


cdef object _read_any_map(Reader *reader, int depth):
    cdef Py_ssize_t index, size = _length(reader, 0x80, 0x8F, 0xDE, 2)
    cdef dict made = {}
    if size < 0 or not _has(reader, 2 * size):
        return _FALLBACK
    for index in range(size):
        name = _read_text(reader)
        if name is None:
            return _FALLBACK
        value = _read_any(reader, depth)
        if value is _FALLBACK:
            return _FALLBACK
        PyDict_SetItem(made, name, value)
    return made


cdef bint _skip(Reader *reader, int depth) except -1:
    """Go to the end of the value that comes next; return whether all of its bytes are there."""
    cdef uint8_t head
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t count = 0
    if not _has(reader, 1) or depth > SKIP_DEPTH_MAX:
        return False
    head = reader.at[0]
    if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC2, 0xC3):
        size = 1
    elif head < 0x90:
        size, count = 1, 2 * (head & 0x0F)
    elif head < 0xA0:
        size, count = 1, head & 0x0F
    elif head < 0xC0:
        size = 1 + (head & 0x1F)
    elif head == 0xC1:
        return False
    elif head <= 0xC9 or 0xD9 <= head <= 0xDF:  # bytes, extensions, texts, arrays, maps: a length comes first
        return _skip_long(reader, depth, head)
    elif head <= 0xCB:
        size = 5 if head == 0xCA else 9
    elif head <= 0xD3:
        size = 1 + (1 << ((head - 0xCC) & 3))
    else:  # an extension of 1, 2, 4, 8 or 16 bytes, after its type
        size = 2 + (1 << (head - 0xD4))
    if not _has(reader, size):
        return False
    reader.at += size
    return _skip_several(reader, depth, count)


cdef bint _skip_long(Reader *reader, int depth, uint8_t head) except -1:
    """Go to the end of a value whose head has a length of 1, 2 or 4 bytes."""
    cdef int width
    cdef uint64_t length
    if head <= 0xC9:
        width = 1 << ((head - 0xC4) % 3)
    elif head <= 0xDB:
        width = 1 << (head - 0xD9)
    else:
        width = 2 << (head & 1)
    if not _has(reader, 1 + width):
        return False
    length = penstock_load_be(reader.at + 1, width)
    reader.at += 1 + width
    if head >= 0xDC:
        return _skip_several(reader, depth, <Py_ssize_t>length * (2 if head >= 0xDE else 1))
    length += 1 if 0xC7 <= head <= 0xC9 else 0  # the type of an extension
    if not _has(reader, <Py_ssize_t>length):
        return False
    reader.at += length
    return True


cdef bint _skip_several(Reader *reader, int depth, Py_ssize_t count) except -1:
    while count > 0:
        if not _skip(reader, depth + 1):
            return False
        count -= 1
    return True


cdef object _read_coded(Reader *reader, Codec codec):
    """Return a value that its codec reads."""
    cdef const uint8_t *start = reader.at
    if not _skip(reader, 0):
        return _FALLBACK
    try:
        return codec.decode(PyBytes_FromStringAndSize(<const char *>start, reader.at - start))
    except Exception:  # which Python raises again, with its text
        return _FALLBACK


cdef object _read(Reader *reader, Node node):
    """Return the value that comes next, or `FALLBACK`."""
    cdef Kind kind = node.kind
    cdef uint8_t head
    if not _has(reader, 1):
        return _FALLBACK
    head = reader.at[0]
    if kind == OPTIONAL or kind == NONE:
        if head == 0xC0:
            reader.at += 1
            return None
        return _FALLBACK if kind == NONE else _read(reader, <Node>node.inside[0])
    if kind == BOOL:
        if head != 0xC2 and head != 0xC3:
            return _FALLBACK
        reader.at += 1
        return head == 0xC3
    if kind == CODED:
        return _read_coded(reader, node.codec)
    if kind == RECORD:
        return _read_record(reader, node)
    if kind == ANY:
        return _read_any(reader, 0)
    if kind == DICT:
        return _read_map(reader, node)
    if kind >= LIST:
        return _read_array(reader, node)
    if kind == INT:
        value = _read_int(reader)
    elif kind == FLOAT:
        value = _read_float(reader)
    elif kind == BYTES:
        value = _read_bytes(reader)
    else:
        value = _read_text(reader)
        if kind == REFERENCE and value is not None:
            value = _refer(node.target, <str>value, <dict>reader.instances)
    return _FALLBACK if value is None else value


cdef dict _decode(RowPlan plan, object key, bytes data, dict instances):
    """Return the attributes of a row, and the key; None if the row is not as the plan says."""
    cdef Py_ssize_t head = PyBytes_GET_SIZE(plan.head), index
    cdef Reader reader
    cdef dict values
    if PyBytes_GET_SIZE(data) < head or memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(plan.head), head):
        return None
    reader.at = <const uint8_t *>PyBytes_AS_STRING(data) + head
    reader.end = <const uint8_t *>PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)
    reader.instances = <PyObject *>instances
    values = {plan.target.key_name: key}
    for index in range(PyTuple_GET_SIZE(plan.names)):
        value = _read(&reader, <Node>plan.nodes[index])
        if value is _FALLBACK:
            return None
        PyDict_SetItem(values, <str>plan.names[index], value)
    return values if reader.at == reader.end else None


cdef tuple _arguments(ArgumentsPlan plan, object data, dict instances):
    """Return the arguments in an encoded array; None if they are not as the plan says."""
    cdef Py_buffer view
    cdef Reader reader
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        reader.at = <const uint8_t *>view.buf
        reader.end = reader.at + view.len
        reader.instances = <PyObject *>instances
        arguments = _read_arguments(&reader, plan)
        return arguments if reader.at == reader.end else None
    finally:
        PyBuffer_Release(&view)


cdef tuple _read_arguments(Reader *reader, ArgumentsPlan plan):
    cdef Py_ssize_t size = _length(reader, 0x90, 0x9F, 0xDC, 2)
    cdef list arguments = []
    cdef Py_ssize_t index
    if size < 0 or size > PyTuple_GET_SIZE(plan.nodes):
        return None
    for index in range(size):
        value = _read(reader, <Node>plan.nodes[index])
        if value is _FALLBACK:
            return None
        arguments.append(value)
    return tuple(arguments)
