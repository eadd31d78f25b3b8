"""Plans: the types of the values in the rows of a class."""

cdef enum Kind:
    INT, FLOAT, BOOL, STR, BYTES, NONE, OPTIONAL, REFERENCE, CODED, RECORD, ANY, LIST, ARRAY, TUPLE, NAMED, DICT, SET
    FROZENSET

KINDS = {
    "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "bytes": BYTES, "none": NONE, "optional": OPTIONAL,
    "reference": REFERENCE, "list": LIST, "array": ARRAY, "tuple": TUPLE, "dict": DICT, "set": SET,
    "frozenset": FROZENSET, "coded": CODED, "record": RECORD, "named": NAMED, "any": ANY,
}
_INSIDE = {OPTIONAL: 1, LIST: 1, ARRAY: 1, SET: 1, FROZENSET: 1, DICT: 2}


@cython.final
cdef class Node:
    """The type of a value: its kind, the types inside, and the entity class of a reference or the codec.

    An `array` is a tuple of any length whose items have one type; a `tuple` has a type for each item. A `coded` value has a
    codec, because its bytes are made elsewhere. A `record` is stored as a map, and a `named` tuple as an array.
    """

    cdef Kind kind
    cdef tuple inside
    cdef Target target
    cdef Codec codec
    cdef Record record

    def __init__(self, str kind, tuple inside=(), object entity_type=None, Codec codec=None, Record record=None):
        self.kind = KINDS[kind]
        self.inside, self.codec, self.record = inside, codec, record
        if (codec is None) == (self.kind == CODED):
            raise ValueError("coded values, and no others, have a codec")
        self.target = None if entity_type is None else Target(entity_type)
        for node in inside:
            if not isinstance(node, Node):
                raise TypeError("the types inside of a type are nodes")
        is_record = self.kind == RECORD or self.kind == NAMED
        if is_record == (record is None) or (self.kind == RECORD) == (record is None or record.style == STYLE_NAMED):
            raise ValueError("records, and no other types, have fields")
        if len(inside) != (
            len(record.names) if is_record else _INSIDE.get(self.kind, len(inside) if self.kind == TUPLE else 0)
        ):
            raise ValueError(f"{kind} with {len(inside)} types inside")
        if (self.target is None) == (self.kind == REFERENCE):
            raise ValueError("references, and no other types, have an entity class")


cdef enum Style:
    STYLE_OBJECT, STYLE_STRUCT, STYLE_DICT, STYLE_NAMED

STYLES = {"object": STYLE_OBJECT, "struct": STYLE_STRUCT, "dict": STYLE_DICT, "named": STYLE_NAMED}


@cython.final
cdef class Record:
    """The class of a record, none of whose values runs code of a user when it is read or made.

    Attributes of the constructor:
        cls: The class.
        style: An `object` keeps its fields as attributes (a dataclass), as a `struct` does, which is called to be made; a `dict`
            is a dictionary (a `TypedDict`), and a `named` tuple is a tuple.
        names: The names of the fields.
        heads: The encoded names in stored maps.
        may_lack: Whether each field may be missing.
        tag: The encoded name and value with which the map begins; empty without.
    """

    cdef Style style
    cdef object cls
    cdef tuple names, heads, may_lack
    cdef bytes tag
    cdef Py_ssize_t extra  # the pairs of the map that are no fields

    def __init__(self, cls, str style, tuple names, tuple heads, tuple may_lack, bytes tag=b""):
        self.cls, self.style, self.names, self.heads, self.may_lack = cls, STYLES[style], names, heads, may_lack
        self.tag, self.extra = tag, 1 if tag else 0
        if not isinstance(cls, type) or (self.style == STYLE_NAMED and not issubclass(cls, tuple)):
            raise TypeError(f"{cls!r} is no class of such records")
        if not all([type(name) is str for name in names]) or not all([type(head) is bytes for head in heads]):
            raise TypeError("each field has a name, and its bytes")
        if not len(names) == len(heads) == len(may_lack):
            raise ValueError("each field has a name, and its bytes")
        if self.style != STYLE_DICT and True in may_lack:
            raise ValueError("only a dictionary may lack a field")

    cdef bint is_intact(self) except -1:
        """Say whether attributes of the class are still read, and kept, without code of a user."""
        cdef Py_ssize_t index
        cdef PyTypeObject *cls = <PyTypeObject *>self.cls
        if not penstock_reads_plainly(cls):
            return False
        for index in range(PyTuple_GET_SIZE(self.names)):
            if not penstock_keeps(cls, self.names[index]):
                return False
        return True


@cython.final
cdef class Codec:
    """Functions, which run no code of a user, between values of some classes and their bytes.

    Attributes of the constructor:
        classes: The classes; a value of a subclass is left to Python.
        encode: Returns the bytes of a value.
        decode: Returns the value of bytes.
        member: A value counts only if this attribute of it has, or is, what `expected` says; empty without this condition.
        expected: The object that the attribute is; a class if the attribute is an instance of exactly this class.
        is_closed: Whether only values count that `decode` returns for their bytes: members of an Enum, or literals.
        without: A value whose bytes contain these is left to Python; empty if none is.
    """

    cdef tuple classes
    cdef object encode, decode, expected
    cdef str member
    cdef bytes without
    cdef bint is_closed
    cdef void *compares  # the comparison of the first class, which a handler could replace

    def __init__(
        self, tuple classes, encode, decode, str member="", expected=None, bint is_closed=False, bytes without=b""
    ):
        self.classes, self.encode, self.decode, self.without = classes, encode, decode, without
        self.member, self.expected, self.is_closed = member, expected, is_closed
        self.compares = penstock_comparison(<PyTypeObject *>classes[0])

    cdef bint takes(self, object value) except -1:
        """Say whether a value is of one of the classes, and fulfils the condition."""
        cdef object cls = type(value)
        cdef Py_ssize_t index
        for index in range(PyTuple_GET_SIZE(self.classes)):
            if self.classes[index] is cls:
                break
        else:
            return False
        if self.is_closed and penstock_comparison(<PyTypeObject *>self.classes[0]) != self.compares:
            return False
        if not self.member:
            return True
        found = getattr(value, self.member)
        return found is self.expected or type(found) is self.expected

    cdef bytes encoded(self, object value):
        """Return the bytes of a value; None if it does not count."""
        if not self.takes(value):
            return None
        try:
            data = self.encode(value)
            if self.without and self.without in data:
                return None
            if not self.is_closed:
                return data
            restored = self.decode(data)
        except Exception:  # which Python raises again, with its text
            return None
        is_same = restored is value or (type(value) in _LITERALS and type(restored) is type(value) and restored == value)
        return data if is_same else None


cdef frozenset _LITERALS = frozenset((int, str, bool))


@cython.final
cdef class Target:
    """An entity class, as references to it need it."""

    cdef object entity_type, cls, unloaded, asleep
    cdef str name, prefix, key_name
    cdef KeyPlan key  # None if Python reads and writes the keys

    def __init__(self, entity_type):
        self.entity_type = entity_type
        self.cls, self.unloaded, self.asleep = entity_type.cls, entity_type.unloaded, entity_type.asleep
        for cls in (self.cls, self.unloaded, self.asleep):
            if not isinstance(cls, type):
                raise TypeError(f"{cls!r} is no class")
        self.name, self.prefix, self.key_name = entity_type.name, entity_type.prefix, entity_type.key_name
        self.key = entity_type.key_plan


@cython.final
cdef class RowPlan:
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

    def is_row(self, values, row):
        """Say whether attributes are surely those of a row; also False near the recursion limit."""
        if type(values) is not dict or type(row) is not bytes or penstock_frames_left() < FRAMES_SPARE:
            return False
        return _encode_change(self, <dict>values, row) is None

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


@cython.final
cdef class ArgumentsPlan:
    """The positional arguments of a method or a function: the type of each."""

    cdef tuple nodes

    def __init__(self, tuple nodes):
        self.nodes = nodes
        for node in nodes:
            if not isinstance(node, Node):
                raise TypeError("the types of arguments are nodes")

    def encode(self, tuple values not None):
        """Return the encoded array of arguments; None if Python must encode them. Fewer of them are no error here."""
        return _packed_arguments(self, values) if penstock_frames_left() >= FRAMES_SPARE else None

    def decode(self, data, instances):
        """Return the arguments in an encoded array, in a tuple, or `FALLBACK`; more or fewer of them are no error here.

        Args:
            data: The array: bytes, or a `msgspec.Raw`.
            instances: The references of the transaction, which gets those of the arguments.
        """
        arguments = _arguments(self, data, instances) if type(instances) is dict else None
        return _FALLBACK if arguments is None else arguments


@cython.final
cdef class ValuePlan:
    """A value by itself: the result of a method or a function, or an event."""

    cdef Node node

    def __init__(self, Node node not None):
        self.node = node

    def encode(self, value):
        """Return the bytes of a value; None if Python must encode it."""
        return _packed(self.node, value) if penstock_frames_left() >= FRAMES_SPARE else None

    def encode_all(self, list values not None):
        """Return the bytes of several values, one after the other; None if Python must encode one of them."""
        return _packed_all(self.node, values) if penstock_frames_left() >= FRAMES_SPARE else None
