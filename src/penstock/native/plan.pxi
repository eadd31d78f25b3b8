"""Plans: the types of the values in the rows of a class."""

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
