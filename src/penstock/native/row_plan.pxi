"""Plans: the types of the values in the rows of a class."""

cdef enum Kind:
    INT, FLOAT, BOOL, STR, BYTES, NONE, OPTIONAL, REFERENCE, CODED, LIST, ARRAY, TUPLE, DICT, SET, FROZENSET

KINDS = {
    "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "bytes": BYTES, "none": NONE, "optional": OPTIONAL,
    "reference": REFERENCE, "list": LIST, "array": ARRAY, "tuple": TUPLE, "dict": DICT, "set": SET,
    "frozenset": FROZENSET, "coded": CODED,
}


@cython.final
cdef class Node:
    """The type of a value: its kind, the types inside, and the entity class of a reference or the codec.

    An `array` is a tuple of any length whose items have one type; a `tuple` has a type for each item. A `coded` value has a
    codec, because its bytes are made elsewhere.
    """

    cdef Kind kind
    cdef tuple inside
    cdef Target target
    cdef Codec codec

    def __init__(self, str kind, tuple inside=(), object entity_type=None, Codec codec=None):
        self.kind = KINDS[kind]
        self.inside = inside
        self.codec = codec
        if (codec is None) == (self.kind == CODED):
            raise ValueError("coded values, and no others, have a codec")
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
cdef class Codec:
    """Functions, which run no code of a user, between values of some classes and their bytes.

    Attributes of the constructor:
        classes: The classes; a value of a subclass is left to Python.
        encode: Returns the bytes of a value.
        decode: Returns the value of bytes.
        member: A value counts only if this attribute of it has, or is, what `expected` says; empty without this condition.
        expected: The object that the attribute is; a class if the attribute is an instance of exactly this class.
        is_closed: Whether only values count that `decode` returns for their bytes: members of an Enum, or literals.
    """

    cdef tuple classes
    cdef object encode, decode, expected
    cdef str member
    cdef bint is_closed
    cdef void *compares  # the comparison of the first class, which a handler could replace

    def __init__(self, tuple classes, encode, decode, str member="", expected=None, bint is_closed=False):
        self.classes, self.encode, self.decode = classes, encode, decode
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
    cdef bint key_is_text
    cdef Py_ssize_t short_key

    def __init__(self, entity_type):
        self.entity_type = entity_type
        self.cls, self.unloaded, self.asleep = entity_type.cls, entity_type.unloaded, entity_type.asleep
        for cls in (self.cls, self.unloaded, self.asleep):
            if not isinstance(cls, type):
                raise TypeError(f"{cls!r} is no class")
        self.name, self.prefix, self.key_name = entity_type.name, entity_type.prefix, entity_type.key_name
        self.key_is_text = entity_type.key_is_text
        self.short_key = _short_key


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

    def decode(self, data, instances):
        """Return the arguments in an encoded array, in a tuple, or `FALLBACK`; more or fewer of them are no error here.

        Args:
            data: The array: bytes, or a `msgspec.Raw`.
            instances: The references of the transaction, which gets those of the arguments.
        """
        arguments = _arguments(self, data, instances) if type(instances) is dict else None
        return _FALLBACK if arguments is None else arguments
