"""The texts of keys: each is that of `penstock.base.key_text`, or is left to it.

A text is written, and read, as the only one that its key has. So what is read needs no second look, and a text that the
key would not be written as is left to Python, which refuses it.
"""

cdef enum KeyKind:
    KEY_TEXT, KEY_INT, KEY_UUID, KEY_CHOICE, KEY_CODED, KEY_PARTS

KEY_KINDS = {
    "text": KEY_TEXT, "int": KEY_INT, "uuid": KEY_UUID, "choice": KEY_CHOICE, "coded": KEY_CODED, "parts": KEY_PARTS,
}

cdef enum:
    KEY_BYTES = 400  # the longest text of a key
    SAFE_DIGITS = 18  # a number with as many digits has less than 64 bits
    UUID_SIZE = 36

cdef const char *_HEX = "0123456789abcdef"


@cython.final
cdef class KeyPlan:
    """The type of a key, or of a part of a key.

    Attributes of the constructor:
        kind: A name in `KEY_KINDS`.
        cls: The class of the keys; a value of another class is left to Python.
        parts: The types of the parts of a tuple.
        codec: For a date or an instant: functions between a key and its JSON; for a UUID, the function that reads MessagePack.
        choices: For an Enum: the members, their values, their texts, and their JSON inside of a tuple.
    """

    cdef KeyKind kind
    cdef object cls, encode, decode
    cdef tuple parts, members, values, wholes, inners
    cdef bint is_lasting  # a key of exactly this type can never change, so a reference keeps the object itself

    def __init__(self, str kind, cls, *, tuple parts=(), tuple codec=(None, None), tuple choices=((), (), (), ())):
        self.kind, self.cls, self.parts = KEY_KINDS[kind], cls, parts
        self.encode, self.decode = codec
        self.members, self.values, self.wholes, self.inners = choices
        for part in parts:
            if type(part) is not KeyPlan:
                raise TypeError("the parts of a key are keys")
        if self.kind == KEY_PARTS and not (isinstance(cls, type) and issubclass(cls, tuple)):
            raise TypeError("a key with parts is a tuple")
        for written in (*self.wholes, *self.inners):
            if type(written) is not bytes:
                raise TypeError("the texts of choices are bytes")
        if not len(self.members) == len(self.values) == len(self.wholes) == len(self.inners):
            raise ValueError("each choice has its value and its texts")
        self.is_lasting = self.kind in (KEY_TEXT, KEY_INT, KEY_CHOICE) or (
            self.kind == KEY_PARTS and all([(<KeyPlan>part).is_lasting for part in parts])
        )

    def text(self, key):
        """Return the text of a key; None if Python must write it."""
        return _key_text(self, key) if penstock_frames_left() >= FRAMES_SPARE else None

    def at(self, text):
        """Return the key with a text; None if Python must read it."""
        return _key_at(self, <str>text) if type(text) is str and penstock_frames_left() >= FRAMES_SPARE else None


cdef str _key_text(KeyPlan plan, object key):
    """Return the text of a key that nothing has checked yet; None if Python must write it."""
    cdef Py_ssize_t size
    if plan.kind != KEY_TEXT:
        return _text_of(plan, key)
    if type(key) is not str or not PyUnicode_IS_COMPACT_ASCII(key):
        return None
    size = PyUnicode_GET_LENGTH(key)
    return <str>key if 0 < size < _short_key else None


cdef str _text_of(KeyPlan plan, object key):
    """Return the text of the key of a reference, whose text was checked when it was made; None if Python must write it."""
    cdef Writer writer
    if plan.kind == KEY_TEXT:
        return <str>key if type(key) is str else None
    if not (type(key) is plan.cls or type(key) is tuple and plan.kind == KEY_PARTS):
        return None
    _begin_row(&writer)
    try:
        if plan.kind == KEY_PARTS:
            if not _write_parts(&writer, plan, <tuple>key):
                return None
        elif not _write_key(&writer, plan, key, False):
            return None
        if not 0 < writer.size <= KEY_BYTES:
            return None
        return PyUnicode_DecodeUTF8(<const char *>writer.data, writer.size, NULL)
    finally:
        _end_row(&writer)


cdef bint _write_key(Writer *writer, KeyPlan plan, object key, bint is_part) except -1:
    """Write a key that is no text, or a part of a key; return whether it is exactly of the type."""
    cdef KeyKind kind = plan.kind
    if type(key) is not plan.cls:
        return False
    if kind == KEY_PARTS:
        return _write_parts(writer, plan, <tuple>key)
    if kind == KEY_INT:
        return _write_digits(writer, key)
    if kind == KEY_UUID:
        return _write_uuid(writer, key, is_part)
    if kind == KEY_CHOICE:
        return _write_choice(writer, plan, key, is_part)
    if kind == KEY_CODED:
        return _write_coded(writer, plan, key, is_part)
    return _write_quoted(writer, key)


cdef bint _write_parts(Writer *writer, KeyPlan plan, tuple key) except -1:
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(plan.parts)
    if PyTuple_GET_SIZE(key) != size:
        return False
    for index in range(size):
        _put(writer, c"[" if index == 0 else c",", 0, 0)
        if not _write_key(writer, <KeyPlan>plan.parts[index], key[index], True):
            return False
    return _put(writer, c"]", 0, 0) == 0


cdef bint _write_digits(Writer *writer, object key) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(key, &overflow)
    cdef uint64_t rest
    cdef char digits[20]
    cdef int place = 20
    if overflow:
        return False
    rest = <uint64_t>number if number >= 0 else <uint64_t>0 - <uint64_t>number
    while True:
        place -= 1
        digits[place] = <char>(48 + rest % 10)
        rest = rest // 10
        if rest == 0:
            break
    if number < 0:
        _put(writer, c"-", 0, 0)
    return _put_raw(writer, digits + place, 20 - place) == 0


cdef bint _write_uuid(Writer *writer, object key, bint is_part) except -1:
    cdef bytes data
    cdef uint8_t byte
    cdef Py_ssize_t index
    cdef char text[38]
    cdef char *to = text
    try:
        number = PyObject_GenericGetAttr(key, "int")
        if type(number) is not int:
            return False
        data = number.to_bytes(16, "big")
    except (AttributeError, OverflowError):  # code of a user has reached into it
        return False
    if is_part:
        to[0] = c'"'
        to += 1
    for index in range(16):
        if index in (4, 6, 8, 10):
            to[0] = c"-"
            to += 1
        byte = <uint8_t>PyBytes_AS_STRING(data)[index]
        to[0], to[1] = _HEX[byte >> 4], _HEX[byte & 15]
        to += 2
    if is_part:
        to[0] = c'"'
        to += 1
    return _put_raw(writer, text, to - text) == 0


cdef bint _write_choice(Writer *writer, KeyPlan plan, object key, bint is_part) except -1:
    cdef Py_ssize_t index = _place_of(plan, key)
    if index < 0:
        return False
    written = <bytes>(plan.inners[index] if is_part else plan.wholes[index])
    return _put_raw(writer, PyBytes_AS_STRING(written), PyBytes_GET_SIZE(written)) == 0


cdef Py_ssize_t _place_of(KeyPlan plan, object member) except -2:
    """Return the place of a member of an Enum; -1 if it is none, or has got another value."""
    cdef Py_ssize_t index
    cdef PyObject *value
    for index in range(PyTuple_GET_SIZE(plan.members)):
        if plan.members[index] is member:
            attributes = PyObject_GenericGetDict(member, NULL)
            value = PyDict_GetItemWithError(attributes, "_value_") if type(attributes) is dict else NULL
            return index if value == <PyObject *>plan.values[index] else -1
    return -1


cdef bint _write_coded(Writer *writer, KeyPlan plan, object key, bint is_part) except -1:
    cdef Py_ssize_t quote = 0 if is_part else 1
    if type(key) is datetime and key.tzinfo is not UTC:
        return False
    try:
        data = plan.encode(key)
    except Exception:  # which Python raises again, with its text
        return False
    if type(data) is not bytes or PyBytes_GET_SIZE(<bytes>data) < 3:
        return False
    return _put_raw(writer, PyBytes_AS_STRING(<bytes>data) + quote, PyBytes_GET_SIZE(<bytes>data) - 2 * quote) == 0


cdef bint _is_plain_char(char char_) noexcept:
    """Say whether JSON writes a character as it is, in one byte."""
    return 0x20 <= char_ < 0x7F and char_ != c'"' and char_ != c"\\"


cdef bint _write_quoted(Writer *writer, object text) except -1:
    cdef Py_ssize_t index, size
    cdef const char *data
    if not PyUnicode_IS_COMPACT_ASCII(text):
        return False
    data, size = <const char *>PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text)
    for index in range(size):
        if not _is_plain_char(data[index]):
            return False
    _put(writer, c'"', 0, 0)
    _put_raw(writer, data, size)
    return _put(writer, c'"', 0, 0) == 0


cdef struct KeyReader:  # a place in the text of a key
    const char *at
    const char *end


cdef object _key_at(KeyPlan plan, str text):
    """Return the key with a text; None if Python must read it, or refuse it."""
    cdef KeyReader reader
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if plan.kind == KEY_TEXT:
        return text if 0 < size < _short_key else None
    if not PyUnicode_IS_COMPACT_ASCII(text) or not 0 < size <= KEY_BYTES:
        return None
    reader.at = <const char *>PyUnicode_DATA(text)
    reader.end = reader.at + size
    key = _read_key(&reader, plan, False)
    return key if reader.at == reader.end else None


cdef object _read_key(KeyReader *reader, KeyPlan plan, bint is_part):
    """Return the key, or the part of a key, that comes next; None if Python must read it."""
    cdef KeyKind kind = plan.kind
    cdef const char *start
    cdef Py_ssize_t index, size
    if kind == KEY_PARTS:
        return _read_parts(reader, plan)
    if kind == KEY_INT:
        return _read_digits(reader)
    if kind == KEY_CHOICE:
        for index in range(PyTuple_GET_SIZE(plan.members)):
            written = <bytes>(plan.inners[index] if is_part else plan.wholes[index])
            size = PyBytes_GET_SIZE(written)
            if reader.end - reader.at >= size + is_part and memcmp(reader.at, PyBytes_AS_STRING(written), size) == 0:
                if reader.at[size] in (c",", c"]") if is_part else reader.end - reader.at == size:
                    reader.at += size
                    member = plan.members[index]
                    return member if _place_of(plan, member) == index else None
        return None
    if is_part:
        if reader.at == reader.end or reader.at[0] != c'"':
            return None
        reader.at += 1
    start = reader.at
    while reader.at < reader.end and _is_plain_char(reader.at[0]):
        reader.at += 1
    size = reader.at - start
    if is_part:
        if reader.at == reader.end or reader.at[0] != c'"':
            return None
        reader.at += 1
    if kind == KEY_TEXT:
        return PyUnicode_DecodeUTF8(start, size, NULL)
    return _decoded_key(plan, start, size)


cdef object _decoded_key(KeyPlan plan, const char *start, Py_ssize_t size):
    """Return a UUID, a date or an instant with a text; None if it would not be written so."""
    cdef Py_ssize_t index
    cdef char head[2]
    try:
        if plan.kind == KEY_UUID:
            if size != UUID_SIZE:
                return None
            for index in range(size):
                if start[index] != c"-" and not (48 <= start[index] <= 57 or 97 <= start[index] <= 102):
                    return None
                if (start[index] == c"-") != (index in (8, 13, 18, 23)):
                    return None
            head[0], head[1] = <char>0xD9, UUID_SIZE
            return plan.decode(PyBytes_FromStringAndSize(head, 2) + PyBytes_FromStringAndSize(start, size))
        data = b'"' + PyBytes_FromStringAndSize(start, size) + b'"'
        key = plan.decode(data)
        if type(key) is not plan.cls or (type(key) is datetime and key.tzinfo is not UTC):
            return None
        return key if plan.encode(key) == data else None
    except Exception:  # which Python raises again, with its text
        return None


cdef object _read_digits(KeyReader *reader):
    cdef int64_t number = 0
    cdef int digits = 0
    cdef bint is_negative = reader.at < reader.end and reader.at[0] == c"-"
    cdef bint begins_with_zero
    if is_negative:
        reader.at += 1
    begins_with_zero = reader.at < reader.end and reader.at[0] == c"0"
    while reader.at < reader.end and 48 <= reader.at[0] <= 57 and digits <= SAFE_DIGITS:
        number = 10 * number + (reader.at[0] - 48)
        reader.at += 1
        digits += 1
    if not 0 < digits <= SAFE_DIGITS or (begins_with_zero and (digits > 1 or is_negative)):
        return None
    return -number if is_negative else number


cdef object _read_parts(KeyReader *reader, KeyPlan plan):
    cdef Py_ssize_t index
    cdef list items = []
    for index in range(PyTuple_GET_SIZE(plan.parts)):
        if reader.at == reader.end or reader.at[0] != (c"[" if index == 0 else c","):
            return None
        reader.at += 1
        item = _read_key(reader, <KeyPlan>plan.parts[index], True)
        if item is None:
            return None
        items.append(item)
    if reader.at == reader.end or reader.at[0] != c"]":
        return None
    reader.at += 1
    return tuple(items) if plan.cls is tuple else penstock_new_tuple(<PyTypeObject *>plan.cls, tuple(items))
