"""Values to rows: each value must be exactly of the type in the plan, so no code of a user runs."""

cdef enum:
    MENTIONS_MAX = 7  # so many accesses of a root are remembered


cdef struct Writer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    uint8_t inside[INLINE_BYTES]
    Py_ssize_t references  # as many are kept: the prefixes of their keys, borrowed, and the texts
    bint has_unloaded
    PyObject *prefixes[MENTIONS_MAX]
    PyObject *texts[MENTIONS_MAX]


cdef list _mentions = None


def watch_mentions(list mentions):
    """Let each written row that is new, or has a reference that was not loaded, add its mentions to a list.

    Args:
        mentions: The list, which gets pairs of an entity's key and the keys of the references in its row; None to end it.
    """
    global _mentions
    _mentions = mentions


cdef inline void _begin_row(Writer *writer) noexcept:
    """Make a writer empty; each writer begins so, because a struct of C begins with any content."""
    writer.data, writer.size, writer.room = writer.inside, 0, INLINE_BYTES
    writer.references, writer.has_unloaded = 0, False


cdef inline void _end_row(Writer *writer) noexcept:
    """Release what a writer holds."""
    cdef Py_ssize_t index
    for index in range(writer.references):
        Py_XDECREF(writer.texts[index])
    if writer.data != writer.inside:
        PyMem_Free(writer.data)


cdef int _reserve(Writer *writer, Py_ssize_t size) except -1:
    """Make room for more bytes."""
    cdef Py_ssize_t room
    cdef uint8_t *data
    if writer.room - writer.size >= size:
        return 0
    room = 2 * writer.room + size
    if writer.data == writer.inside:
        data = <uint8_t *>PyMem_Malloc(room)
        if data != NULL:
            memcpy(data, writer.data, writer.size)
    else:
        data = <uint8_t *>PyMem_Realloc(writer.data, room)
    if data == NULL:
        raise MemoryError
    writer.data = data
    writer.room = room
    return 0


cdef int _put(Writer *writer, uint8_t head, uint64_t value, int width) except -1:
    """Write a head, and a number of some bytes after it."""
    _reserve(writer, 9)
    writer.data[writer.size] = head
    penstock_store_be(writer.data + writer.size + 1, value, width)
    writer.size += 1 + width
    return 0


cdef int _put_length(Writer *writer, uint64_t size, uint8_t fix, uint64_t fix_max, uint8_t wide) except -1:
    """Write the head of an array or a map."""
    if size <= fix_max:
        return _put(writer, fix | <uint8_t>size, 0, 0)
    if size <= 0xFFFF:
        return _put(writer, wide, size, 2)
    return _put(writer, wide + 1, size, 4)


cdef int _put_data(Writer *writer, const char *data, Py_ssize_t size, uint8_t wide) except -1:
    """Write the head of a text or of bytes, and the data; the head of a short text is written before."""
    if size <= 0xFF:
        _put(writer, wide, size, 1)
    elif size <= 0xFFFF:
        _put(writer, wide + 1, size, 2)
    else:
        _put(writer, wide + 2, size, 4)
    return _put_raw(writer, data, size)


cdef int _put_raw(Writer *writer, const char *data, Py_ssize_t size) except -1:
    _reserve(writer, size)
    memcpy(writer.data + writer.size, data, size)
    writer.size += size
    return 0


cdef bint _write_int(Writer *writer, object value) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef uint64_t positive
    if overflow < 0:
        return False
    if overflow == 0 and number < 0:
        if number >= -32:
            _put(writer, <uint8_t>number, 0, 0)
        elif number >= -0x80:
            _put(writer, 0xD0, <uint64_t>number, 1)
        elif number >= -0x8000:
            _put(writer, 0xD1, <uint64_t>number, 2)
        elif number >= -0x80000000LL:
            _put(writer, 0xD2, <uint64_t>number, 4)
        else:
            _put(writer, 0xD3, <uint64_t>number, 8)
        return True
    if overflow:
        try:
            positive = PyLong_AsUnsignedLongLong(value)
        except OverflowError:
            return False
    else:
        positive = <uint64_t>number
    if positive < 0x80:
        _put(writer, <uint8_t>positive, 0, 0)
    elif positive <= 0xFF:
        _put(writer, 0xCC, positive, 1)
    elif positive <= 0xFFFF:
        _put(writer, 0xCD, positive, 2)
    elif positive <= 0xFFFFFFFF:
        _put(writer, 0xCE, positive, 4)
    else:
        _put(writer, 0xCF, positive, 8)
    return True


cdef bint _write_text(Writer *writer, object value) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *data
    try:
        data = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError:
        return False
    if size > 0xFFFFFFFF:
        return False
    if size <= 31:
        _put(writer, 0xA0 | <uint8_t>size, 0, 0)
        _put_raw(writer, data, size)
    else:
        _put_data(writer, data, size, 0xD9)
    return True


cdef bint _write_float(Writer *writer, double value) except -1:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    _put(writer, 0xCB, bits, 8)
    return True


cdef bint _write_reference(Writer *writer, Target target, object value) except -1:
    """Write the key of a reference, as `EntityType.text_of` returns it."""
    cdef object cls = type(value)
    if not (cls is target.unloaded or cls is target.cls or cls is target.asleep) or target.key is None:
        return False
    attributes = PyObject_GenericGetDict(value, NULL)
    if type(attributes) is not dict:
        return False
    key = _text_of(target.key, <object>_or_none(PyDict_GetItemWithError(attributes, target.key_name)))
    if key is None:
        return False
    if writer.references < MENTIONS_MAX and _mentions is not None:
        Py_INCREF(key)
        writer.prefixes[writer.references], writer.texts[writer.references] = <PyObject *>target.prefix, <PyObject *>key
        writer.references += 1
    writer.has_unloaded = writer.has_unloaded or cls is target.unloaded
    return _write_text(writer, key)


cdef inline PyObject *_or_none(PyObject *found):
    return found if found != NULL else <PyObject *>None


cdef bint _write_list(Writer *writer, Node node, list value) except -1:
    cdef Py_ssize_t index = 0, size = PyList_GET_SIZE(value)
    cdef Node item = <Node>node.inside[0]
    if size > 0xFFFFFFFF:
        return False
    _put_length(writer, size, 0x90, 15, 0xDC)
    while index < PyList_GET_SIZE(value):
        if not _write(writer, item, value[index]):
            return False
        index += 1
    return index == size


cdef bint _write_tuple(Writer *writer, Node node, tuple value) except -1:
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(value)
    cdef bint is_array = node.kind == ARRAY
    if size > 0xFFFFFFFF or not (is_array or size == PyTuple_GET_SIZE(node.inside)):
        return False
    _put_length(writer, size, 0x90, 15, 0xDC)
    for index in range(size):
        if not _write(writer, <Node>node.inside[0 if is_array else index], value[index]):
            return False
    return True


cdef bint _write_record(Writer *writer, Node node, object value) except -1:
    """Write a record as a map of its fields."""
    cdef Record record = node.record
    cdef Py_ssize_t index, width = PyTuple_GET_SIZE(record.names)
    if record.style == STYLE_DICT:
        return type(value) is dict and _write_typed_dict(writer, node, <dict>value)
    if type(value) is not record.cls or not record.is_intact():
        return False
    _put_length(writer, width + record.extra, 0x80, 15, 0xDE)
    _put_raw(writer, PyBytes_AS_STRING(record.tag), PyBytes_GET_SIZE(record.tag))
    for index in range(width):
        try:
            part = PyObject_GenericGetAttr(value, record.names[index])
        except AttributeError:
            return False
        if not _write_field(writer, node, index, part):
            return False
    return True


cdef bint _write_field(Writer *writer, Node node, Py_ssize_t index, object value) except -1:
    cdef bytes head = <bytes>node.record.heads[index]
    _put_raw(writer, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    return _write(writer, <Node>node.inside[index], value)


cdef bint _write_typed_dict(Writer *writer, Node node, dict value) except -1:
    cdef Record record = node.record
    cdef Py_ssize_t index, place = 0
    cdef PyObject *name
    cdef PyObject *part
    while PyDict_Next(value, &place, &name, &part):
        if type(<object>name) is not str:  # a look-up could run code of a user
            return False
    _put_length(writer, PyDict_Size(value) + record.extra, 0x80, 15, 0xDE)
    place = 0
    for index in range(PyTuple_GET_SIZE(record.names)):
        part = PyDict_GetItemWithError(value, record.names[index])
        if part != NULL:
            place += 1
            item = <object>part  # held, whatever happens to the dictionary
            if not _write_field(writer, node, index, item):
                return False
        elif record.may_lack[index] is not True:
            return False
    return place == PyDict_Size(value)


cdef bint _write_any(Writer *writer, object value, int depth) except -1:
    """Write a value of no declared type, if reading it gives the same."""
    cdef object cls = type(value)
    cdef Py_ssize_t index = 0, size
    if value is None:
        return _put(writer, 0xC0, 0, 0) == 0
    if cls is str:
        return _write_text(writer, value)
    if cls is int:
        return _write_int(writer, value)
    if cls is bool:
        return _put(writer, 0xC3 if value is True else 0xC2, 0, 0) == 0
    if cls is float:
        return _write_float(writer, value)
    if cls is bytes:
        return _write_bytes(writer, <bytes>value)
    if depth == ANY_DEPTH_MAX:
        return False
    if cls is dict:
        return _write_any_dict(writer, <dict>value, depth + 1)
    if cls is not list:
        return False
    size = PyList_GET_SIZE(<list>value)
    if size > 0xFFFFFFFF:
        return False
    _put_length(writer, size, 0x90, 15, 0xDC)
    while index < PyList_GET_SIZE(<list>value):
        if not _write_any(writer, (<list>value)[index], depth + 1):
            return False
        index += 1
    return index == size


cdef bint _write_any_dict(Writer *writer, dict value, int depth) except -1:
    cdef list pairs = []
    for name, item in tuple(value.items()):
        if type(name) is not str:
            return False
        data = _packed(_TEXT, name)
        if data is None:
            return False
        pairs.append((data, item))
    if len(pairs) > 0xFFFFFFFF:
        return False
    pairs.sort(key=_first)
    _put_length(writer, len(pairs), 0x80, 15, 0xDE)
    for data, item in pairs:
        _put_raw(writer, PyBytes_AS_STRING(<bytes>data), PyBytes_GET_SIZE(<bytes>data))
        if not _write_any(writer, item, depth):
            return False
    return True


cdef bint _write_bytes(Writer *writer, bytes value) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    return size <= 0xFFFFFFFF and _put_data(writer, PyBytes_AS_STRING(value), size, 0xC4) == 0


cdef bytes _packed(Node node, object value):
    """Return the bytes of a value by itself; None if it does not fit."""
    cdef Writer writer
    _begin_row(&writer)
    try:
        if not _write(&writer, node, value):
            return None
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        _end_row(&writer)


cdef bytes _packed_arguments(ArgumentsPlan plan, tuple values):
    """Return the array of arguments; None if one does not fit, or there are too many."""
    cdef Writer writer
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(values)
    if size > PyTuple_GET_SIZE(plan.nodes):
        return None
    _begin_row(&writer)
    try:
        _put_length(&writer, size, 0x90, 15, 0xDC)
        for index in range(size):
            if not _write(&writer, <Node>plan.nodes[index], values[index]):
                return None
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        _end_row(&writer)


cdef bytes _packed_all(Node node, list values):
    """Return the bytes of several values, one after the other; None if one does not fit."""
    cdef Writer writer
    cdef Py_ssize_t index = 0
    _begin_row(&writer)
    try:
        while index < PyList_GET_SIZE(values):
            if not _write(&writer, node, values[index]):
                return None
            index += 1
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        _end_row(&writer)


cdef bint _write_sorted(Writer *writer, list packed, uint8_t fix, uint8_t wide) except -1:
    """Write members in the order of their bytes."""
    if len(packed) > 0xFFFFFFFF:
        return False
    packed.sort()
    _put_length(writer, len(packed), fix, 15, wide)
    for item in packed:
        _put_raw(writer, PyBytes_AS_STRING(<bytes>item), PyBytes_GET_SIZE(<bytes>item))
    return True


cdef bint _write_set(Writer *writer, Node node, object value) except -1:
    cdef list packed = []
    for item in tuple(value):
        data = _packed(<Node>node.inside[0], item)
        if data is None:
            return False
        packed.append(data)
    return _write_sorted(writer, packed, 0x90, 0xDC)


cdef bint _write_dict(Writer *writer, Node node, dict value) except -1:
    """Write a dictionary, ordered by the bytes of its keys, which are different."""
    cdef list pairs = []
    if len(value) > 0xFFFFFFFF:
        return False
    for name, item in tuple(value.items()):
        data = _packed(<Node>node.inside[0], name)
        if data is None:
            return False
        pairs.append((data, item))
    pairs.sort(key=_first)
    _put_length(writer, len(pairs), 0x80, 15, 0xDE)
    for data, item in pairs:
        _put_raw(writer, PyBytes_AS_STRING(<bytes>data), PyBytes_GET_SIZE(<bytes>data))
        if not _write(writer, <Node>node.inside[1], item):
            return False
    return True


def _first(tuple pair):
    return pair[0]


cdef Node _TEXT = Node("str")


cdef bint _write(Writer *writer, Node node, object value) except -1:
    """Write a value; return whether it is exactly of the type, with the same bytes as Python would write."""
    cdef Kind kind = node.kind
    cdef object cls = type(value)
    if kind == OPTIONAL:
        if value is not None:
            return _write(writer, <Node>node.inside[0], value)
        kind = NONE
    if kind == NONE:
        return value is None and _put(writer, 0xC0, 0, 0) == 0
    if kind == INT:
        return cls is int and _write_int(writer, value)
    if kind == STR:
        return cls is str and _write_text(writer, value)
    if kind == BOOL:
        return cls is bool and _put(writer, 0xC3 if value is True else 0xC2, 0, 0) == 0
    if kind == REFERENCE:
        return _write_reference(writer, node.target, value)
    if kind == FLOAT:
        return cls is float and _write_float(writer, value)
    if kind == BYTES:
        return cls is bytes and _write_bytes(writer, <bytes>value)
    if kind == CODED:
        data = node.codec.encoded(value)
        return data is not None and _put_raw(writer, PyBytes_AS_STRING(<bytes>data), PyBytes_GET_SIZE(<bytes>data)) == 0
    if kind == RECORD:
        return _write_record(writer, node, value)
    if kind == ANY:
        return _write_any(writer, value, 0)
    if kind == LIST:
        return cls is list and _write_list(writer, node, <list>value)
    if kind == DICT:
        return cls is dict and _write_dict(writer, node, <dict>value)
    if kind == SET:
        return cls is set and _write_set(writer, node, value)
    if kind == FROZENSET:
        return cls is frozenset and _write_set(writer, node, value)
    return cls is (node.record.cls if kind == NAMED else tuple) and _write_tuple(writer, node, <tuple>value)


cdef object _encode_change(RowPlan plan, dict values, object before):
    """Return the row of attributes, None if it is the row `before`, or `FALLBACK`."""
    cdef Writer writer
    cdef PyObject *found
    cdef Py_ssize_t index, width = PyTuple_GET_SIZE(plan.names)
    if len(values) != width + 1 or PyDict_GetItemWithError(values, plan.target.key_name) == NULL:
        return _FALLBACK
    _begin_row(&writer)
    try:
        _put_raw(&writer, PyBytes_AS_STRING(plan.head), PyBytes_GET_SIZE(plan.head))
        for index in range(width):
            found = PyDict_GetItemWithError(values, <str>plan.names[index])
            if found == NULL:
                return _FALLBACK
            value = <object>found  # held, whatever happens to the dictionary
            if not _write(&writer, <Node>plan.nodes[index], value):
                return _FALLBACK
        if (
            before is not None
            and PyBytes_GET_SIZE(<bytes>before) == writer.size
            and memcmp(PyBytes_AS_STRING(<bytes>before), writer.data, writer.size) == 0
        ):
            return None
        if _mentions is not None and writer.references and (before is None or writer.has_unloaded):
            _mention(&writer, plan, values)
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        _end_row(&writer)


cdef int _mention(Writer *writer, RowPlan plan, dict values) except -1:
    """Add the mentions of a row to the list; its attributes still hold the keys."""
    cdef Py_ssize_t index
    cdef PyObject *name = PyDict_GetItemWithError(values, plan.target.key_name)
    cdef object text = None if name == NULL or plan.target.key is None else _text_of(plan.target.key, <object>name)
    if text is None:
        return 0
    keys = [
        PyUnicode_Concat(<object>writer.prefixes[index], <object>writer.texts[index])
        for index in range(writer.references)
    ]
    _mentions.append((PyUnicode_Concat(plan.target.prefix, text), keys))
    return 0
