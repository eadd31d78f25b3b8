# cython: language_level=3, binding=True, annotation_typing=False
"""The compiled twin of the most frequent work of a transaction: rows, references, loading, changes.

Each function does the usual case alone, and leaves every other case to the Python function that it stands for, from
the beginning. So all errors, and all rare types, have one implementation. A function that gives up has done nothing
that the Python function would not do again with the same result.

The same outcome for every behaviour of a handler rests on three rules:

1. No code of a user runs in here: values are of exactly the built-in types that a plan names, or the work is left to Python.
2. Near the recursion limit, where the Python functions could fail, they run. A compiled function takes no frame, so the
   frames of the Python functions are counted as before.
3. Rows come from files, and are checked at each step: a row that is not what the plan expects is left to Python.

`bind_entities` and `bind_transactions` get the Python functions, when `penstock.model` is imported. `Plan` describes the rows of a class.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #include <stdint.h>

    #ifndef PENSTOCK_SOURCE
    #define PENSTOCK_SOURCE ""  /* the build defines it */
    #endif

    static inline int penstock_frames_left(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyThreadState_Get()->py_recursion_remaining;
    #else
        return PyThreadState_Get()->recursion_remaining;
    #endif
    }

    /* Whether attributes of a type are read in the usual way, without a function of the user. */
    static inline int penstock_reads_plainly(PyTypeObject *type) {
        return type->tp_getattro == PyObject_GenericGetAttr;
    }

    static inline PyObject *penstock_new_object(PyTypeObject *type, PyObject *no_arguments) {
        return PyBaseObject_Type.tp_new(type, no_arguments, NULL);
    }

    static inline uint64_t penstock_load_be(const uint8_t *from, int width) {
        uint64_t value = 0;
        for (int index = 0; index < width; index++) value = (value << 8) | from[index];
        return value;
    }

    static inline void penstock_store_be(uint8_t *to, uint64_t value, int width) {
        for (int index = width - 1; index >= 0; index--) { to[index] = (uint8_t)value; value >>= 8; }
    }
    """
    const char *PENSTOCK_SOURCE
    int penstock_frames_left()
    int penstock_reads_plainly(PyTypeObject *type)
    object penstock_new_object(PyTypeObject *type, object no_arguments)
    uint64_t penstock_load_be(const uint8_t *source, int width) nogil
    void penstock_store_be(uint8_t *to, uint64_t value, int width) nogil
    PyObject *_PyType_Lookup(PyTypeObject *type, object name)
    object PyObject_GenericGetDict(object instance, void *context)
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1
    int PyContextVar_Get(object variable, PyObject *default, PyObject **value) except -1
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject *PyDict_SetDefault(object mapping, object key, object default) except NULL
    object PyMethod_New(object function, object instance)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    object PyUnicode_Concat(object left, object right)
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    uint64_t PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF
    Py_ssize_t Py_REFCNT(object instance)

    ctypedef class types.FunctionType [object PyFunctionObject]:
        pass


SOURCE = PENSTOCK_SOURCE.decode()
"""The digest of the source that this module was built from."""

FALLBACK = object()
"""What a compiled function returns to say that the Python function must do the work."""

cdef object _FALLBACK = FALLBACK
cdef tuple _NO_ARGUMENTS = ()
cdef enum:
    FRAMES_SPARE = 128  # more than the Python functions take, with values nested as deeply as a plan can be
    INLINE_BYTES = 1024

cdef enum Kind:
    INT, FLOAT, BOOL, STR, BYTES, NONE, OPTIONAL, REFERENCE, LIST, ARRAY, TUPLE, DICT, SET, FROZENSET

KINDS = {
    "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "bytes": BYTES, "none": NONE, "optional": OPTIONAL,
    "reference": REFERENCE, "list": LIST, "array": ARRAY, "tuple": TUPLE, "dict": DICT, "set": SET,
    "frozenset": FROZENSET,
}


@cython.final
cdef class Node:
    """The type of a value: its kind, the types inside, and the entity class of a reference.

    An `array` is a tuple of any length whose items have one type; a `tuple` has a type for each item.
    """

    cdef Kind kind
    cdef tuple inside
    cdef Target target

    def __init__(self, str kind, tuple inside=(), object entity_type=None):
        self.kind = KINDS[kind]
        self.inside = inside
        self.target = None if entity_type is None else Target(entity_type)
        for node in inside:
            if not isinstance(node, Node):
                raise TypeError("the types inside of a type are nodes")
        if len(inside) != {OPTIONAL: 1, LIST: 1, ARRAY: 1, SET: 1, FROZENSET: 1, DICT: 2}.get(
            self.kind, len(inside) if self.kind == TUPLE else 0
        ):
            raise ValueError(f"{kind} with {len(inside)} types inside")
        if (self.target is None) == (self.kind == REFERENCE):
            raise ValueError("references, and no other types, have an entity class")


@cython.final
cdef class Target:
    """An entity class, as references to it need it."""

    cdef object entity_type, cls, unloaded, asleep
    cdef str prefix, key_name
    cdef bint key_is_text
    cdef Py_ssize_t short_key

    def __init__(self, entity_type):
        self.entity_type = entity_type
        self.cls, self.unloaded, self.asleep = entity_type.cls, entity_type.unloaded, entity_type.asleep
        for cls in (self.cls, self.unloaded, self.asleep):
            if not isinstance(cls, type):
                raise TypeError(f"{cls!r} is no class")
        self.prefix, self.key_name = entity_type.prefix, entity_type.key_name
        self.key_is_text = entity_type.key_is_text
        self.short_key = _short_key


@cython.final
cdef class Plan:
    """The rows of a class: their first bytes, and the name and type of each attribute."""

    cdef Target target
    cdef bytes head
    cdef tuple names, nodes

    def __init__(self, entity_type, bytes head, tuple names, tuple nodes):
        self.target = Target(entity_type)
        self.head, self.names, self.nodes = head, names, nodes
        if len(names) != len(nodes) or not all([type(name) is str for name in names]):
            raise ValueError("each name needs a type")
        for node in nodes:
            if not isinstance(node, Node):
                raise TypeError("the types of attributes are nodes")

    def encode_change(self, values, before):
        """Return the row of attributes, None if it is the row `before`, or `FALLBACK`."""
        if type(values) is not dict or not (before is None or type(before) is bytes):
            return _FALLBACK
        return _encode_change(self, <dict>values, before)

    def decode(self, key, data, instances):
        """Return the attributes of a row, and the key, or `FALLBACK`.

        Args:
            key: The key.
            data: The row.
            instances: The references of the transaction, which gets those of the row.
        """
        if type(data) is not bytes or type(instances) is not dict:
            return _FALLBACK
        values = _decode(self, key, <bytes>data, <dict>instances)
        return _FALLBACK if values is None else values


cdef object _active, _python_hook, _python_get, _python_load, _python_refer, _python_changes, _python_release
cdef Py_ssize_t _short_key = 0


def bind_entities(*, active, short_key, load_to_get, get_loaded, refer_text):
    """Take the Python functions of references, to which the compiled functions leave all unusual cases.

    Args:
        active: The context variable of the running transaction.
        short_key: A key with fewer characters needs no check.
        load_to_get: The hook of references that are not loaded.
        get_loaded: Returns an attribute of an entity that has been loaded.
        refer_text: Returns the reference with the text of a key.
    """
    global _active, _short_key, _python_hook, _python_get, _python_refer
    _active, _short_key = active, short_key
    _python_hook, _python_get, _python_refer = load_to_get, get_loaded, refer_text


def bind_transactions(*, load, changes, release):
    """Take the methods of `Transaction`, to which the compiled methods leave all unusual cases."""
    global _python_load, _python_changes, _python_release
    _python_load, _python_changes, _python_release = load, changes, release


# Rows to values.


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
    if node.kind == TUPLE:
        if size != PyTuple_GET_SIZE(node.inside):
            return _FALLBACK
        items = []
        for index in range(size):
            value = _read(reader, <Node>node.inside[index])
            if value is _FALLBACK:
                return _FALLBACK
            items.append(value)
        return tuple(items)
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


cdef dict _decode(Plan plan, object key, bytes data, dict instances):
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


# Values to rows.


cdef struct Writer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    uint8_t inside[INLINE_BYTES]


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
    if not (cls is target.unloaded or cls is target.cls or cls is target.asleep) or not target.key_is_text:
        return False
    attributes = PyObject_GenericGetDict(value, NULL)
    if type(attributes) is not dict:
        return False
    key = <object>_or_none(PyDict_GetItemWithError(attributes, target.key_name))
    return type(key) is str and _write_text(writer, key)


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
    if size > 0xFFFFFFFF or (node.kind == TUPLE and size != PyTuple_GET_SIZE(node.inside)):
        return False
    _put_length(writer, size, 0x90, 15, 0xDC)
    for index in range(size):
        if not _write(writer, <Node>node.inside[index if node.kind == TUPLE else 0], value[index]):
            return False
    return True


cdef bytes _packed(Node node, object value):
    """Return the bytes of a value by itself; None if it does not fit."""
    cdef Writer writer
    writer.data, writer.size, writer.room = writer.inside, 0, INLINE_BYTES
    try:
        if not _write(&writer, node, value):
            return None
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        if writer.data != writer.inside:
            PyMem_Free(writer.data)


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
        return (
            cls is bytes
            and PyBytes_GET_SIZE(<bytes>value) <= 0xFFFFFFFF
            and _put_data(writer, PyBytes_AS_STRING(<bytes>value), PyBytes_GET_SIZE(<bytes>value), 0xC4) == 0
        )
    if kind == LIST:
        return cls is list and _write_list(writer, node, <list>value)
    if kind == DICT:
        return cls is dict and _write_dict(writer, node, <dict>value)
    if kind == SET:
        return cls is set and _write_set(writer, node, value)
    if kind == FROZENSET:
        return cls is frozenset and _write_set(writer, node, value)
    return cls is tuple and _write_tuple(writer, node, <tuple>value)


cdef object _encode_change(Plan plan, dict values, object before):
    """Return the row of attributes, None if it is the row `before`, or `FALLBACK`."""
    cdef Writer writer
    cdef Py_ssize_t index, width = PyTuple_GET_SIZE(plan.names)
    if len(values) != width + 1 or PyDict_GetItemWithError(values, plan.target.key_name) == NULL:
        return _FALLBACK
    writer.data, writer.size, writer.room = writer.inside, 0, INLINE_BYTES
    try:
        _put_raw(&writer, PyBytes_AS_STRING(plan.head), PyBytes_GET_SIZE(plan.head))
        for index in range(width):
            value = PyDict_GetItemWithError(values, <str>plan.names[index])
            if value == NULL or not _write(&writer, <Node>plan.nodes[index], <object>value):
                return _FALLBACK
        if (
            before is not None
            and PyBytes_GET_SIZE(<bytes>before) == writer.size
            and memcmp(PyBytes_AS_STRING(<bytes>before), writer.data, writer.size) == 0
        ):
            return None
        return PyBytes_FromStringAndSize(<const char *>writer.data, writer.size)
    finally:
        if writer.data != writer.inside:
            PyMem_Free(writer.data)


# Transactions.


cdef object _refer(Target target, str text, dict instances):
    """Return the reference with the text of a key; None if Python must make it."""
    cdef Py_ssize_t size = len(text)
    cdef PyObject *known
    if not target.key_is_text or size == 0 or size >= target.short_key:
        return None
    key = PyUnicode_Concat(target.prefix, text)
    known = PyDict_GetItemWithError(instances, key)
    if known != NULL and <object>known is not None:
        return <object>known
    made = penstock_new_object(<PyTypeObject *>target.unloaded, _NO_ARGUMENTS)
    PyObject_GenericSetAttr(made, target.key_name, text)
    PyDict_SetItem(instances, key, made)
    return made


cdef Plan _plan_of(object instance):
    """Return the plan of an instance's class; None without one."""
    cdef object cls = type(instance)
    cdef PyObject *entity_type = _PyType_Lookup(<PyTypeObject *>cls, "__reference__")
    if entity_type == NULL:
        return None
    plan = (<object>entity_type).plan
    return <Plan>plan if type(plan) is Plan else None


cdef bint _load(object txn, Plan plan, object instance) except -1:
    """Turn a reference into the live entity, as `Transaction.load` does; return False to leave it to Python."""
    cdef Target target = plan.target
    cdef PyObject *found
    cdef dict values
    if penstock_frames_left() < FRAMES_SPARE or not target.key_is_text:
        return False
    attributes, instances, before = PyObject_GenericGetDict(instance, NULL), txn.instances, txn.before
    if type(attributes) is not dict or type(instances) is not dict or type(before) is not dict:
        return False
    found = PyDict_GetItemWithError(attributes, target.key_name)
    if found == NULL or type(<object>found) is not str:
        return False
    name = <object>found
    key = PyUnicode_Concat(target.prefix, name)
    if PyDict_SetDefault(instances, key, instance) != <PyObject *>instance:
        return False
    found = PyDict_GetItemWithError(before, key)
    if found == NULL:
        entity_types = txn._entity_types
        if type(entity_types) is not dict:
            return False
        found = PyDict_GetItemWithError(entity_types, target.entity_type.name)
        if found == NULL or <object>found is not target.entity_type:
            return False
        data = txn._read(key)
        PyDict_SetItem(before, key, data)
    else:
        data = <object>found
        if key in txn.deleted:
            return False
    if type(data) is not bytes:
        return False
    values = _decode(plan, name, <bytes>data, <dict>instances)
    if values is None:
        return False
    PyObject_GenericSetAttr(instance, "__dict__", values)
    PyObject_GenericSetAttr(instance, "__class__", target.cls)
    if txn._watched:
        txn._note(key)
    return True


def load(txn, entity_type, instance):
    """Turn a reference into the live entity; see `Transaction.load`."""
    plan = entity_type.plan
    if type(plan) is not Plan or not _load(txn, <Plan>plan, instance):
        _python_load(txn, entity_type, instance)


def refer_text(entity_type, text):
    """Return the reference with the text of a key; see `penstock.model.entity`."""
    cdef PyObject *active = NULL
    plan = entity_type.plan
    if type(plan) is Plan and type(text) is str and penstock_frames_left() >= FRAMES_SPARE:
        PyContextVar_Get(_active, NULL, &active)
        if active != NULL:
            txn = <object>active
            Py_DECREF(txn)
            instances = txn.instances
            if type(instances) is dict:
                made = _refer((<Plan>plan).target, <str>text, <dict>instances)
                if made is not None:
                    return made
    return _python_refer(entity_type, text)


def load_to_get(instance, name):
    """Return an attribute of a reference that is not loaded; see `penstock.model.entity`."""
    cdef PyObject *active = NULL
    cdef PyObject *found
    cdef Plan plan = _plan_of(instance)
    cdef Target target
    if plan is None or type(name) is not str or penstock_frames_left() < FRAMES_SPARE:
        return _python_hook(instance, name)
    target = plan.target
    if type(instance) is not target.unloaded or name == "delete" or _is_special(<str>name):
        return _python_hook(instance, name)
    if name == target.key_name:
        attributes = PyObject_GenericGetDict(instance, NULL)
        found = NULL
        if type(attributes) is dict and _PyType_Lookup(<PyTypeObject *>target.unloaded, name) == NULL:
            found = PyDict_GetItemWithError(attributes, name)
        return <object>found if found != NULL else _python_hook(instance, name)
    PyContextVar_Get(_active, NULL, &active)
    if active == NULL:
        return _python_hook(instance, name)
    txn = <object>active
    Py_DECREF(txn)
    if not _load(txn, plan, instance):
        return _python_hook(instance, name)
    return _attribute(target, instance, name)


cdef bint _is_special(str name):
    return len(name) >= 2 and name[0] == "_" and name[1] == "_"


cdef object _attribute(Target target, object instance, object name):
    """Return an attribute of a loaded entity; Python reads it where a function of the user may run."""
    cdef PyTypeObject *cls = <PyTypeObject *>target.cls
    cdef PyObject *found
    cdef PyObject *of_class
    if type(instance) is not target.cls or not penstock_reads_plainly(cls):
        return _python_get(instance, name)
    of_class = _PyType_Lookup(cls, name)
    attributes = PyObject_GenericGetDict(instance, NULL)
    if type(attributes) is not dict:
        return _python_get(instance, name)
    found = PyDict_GetItemWithError(attributes, name)
    if of_class == NULL and found != NULL:
        return <object>found
    if found == NULL and of_class != NULL and type(<object>of_class) is FunctionType:
        return PyMethod_New(<object>of_class, instance)
    return _python_get(instance, name)


def changes(txn):
    """Return the changed entities with their new rows; see `Transaction.changes`."""
    cdef PyObject *found
    cdef Plan plan
    cdef dict changed = {}
    instances, states, deleted = txn.instances, txn.before, txn.deleted
    if txn._doom is not None or type(instances) is not dict or type(states) is not dict:
        return _python_changes(txn)
    for key, before in (<dict>states).items():
        found = PyDict_GetItemWithError(instances, key)
        if found != NULL and <object>found is not None:
            instance = <object>found
            plan = _plan_of(instance)
            if plan is None:
                return _python_changes(txn)
            cls = type(instance)
            if cls is plan.target.cls or cls is plan.target.asleep:
                values = PyObject_GenericGetDict(instance, NULL)
                if type(values) is not dict or not _has_key(plan, <dict>values, key):
                    return _python_changes(txn)
                if not (before is None or type(before) is bytes):
                    return _python_changes(txn)
                after = _encode_change(plan, <dict>values, before)
                if after is _FALLBACK:
                    return _python_changes(txn)
                if after is not None:
                    changed[key] = after
                continue
        if before is not None and key in deleted:
            changed[key] = None
    return changed


cdef bint _has_key(Plan plan, dict values, object key) except -1:
    """Say whether attributes have the key of an entity, which is a text."""
    cdef PyObject *name = PyDict_GetItemWithError(values, plan.target.key_name)
    if name == NULL or type(<object>name) is not str:
        return False
    return PyUnicode_Concat(plan.target.prefix, <object>name) == key


def release(txn):
    """End the transaction; see `Transaction.release`."""
    instances = txn.instances
    if type(instances) is not dict:
        return _python_release(txn)
    for key in tuple(<dict>instances):
        instance = (<dict>instances).pop(key)
        if Py_REFCNT(instance) > 1:  # not only this variable
            entity_type = type(instance).__reference__
            if txn.is_live(entity_type, instance):
                txn.unload(entity_type, key, instance)
    if txn._aliases or txn.blocks:
        _python_release(txn)
