"""Slots: the attributes of classes with `__slots__`, read and written without a look-up.

A slot is used only for an instance of exactly the class in which it was found. A handler may have deleted an attribute; then
`_slot` returns `FALLBACK`, which is none of the values that a compiled function expects, so it gives up.
"""


cdef Py_ssize_t _offset(object cls, str name) except -1:
    """Return the place of a slot in the instances of a class."""
    cdef Py_ssize_t offset = penstock_slot_offset(cls.__dict__[name])
    if offset <= 0:
        raise TypeError(f"{cls.__name__}.{name} is not a slot for an object")
    return offset


cdef inline object _slot(object instance, Py_ssize_t offset):
    """Return the value of a slot; FALLBACK if it has none."""
    cdef PyObject *value = penstock_slot(<PyObject *>instance, offset)[0]
    return _FALLBACK if value == NULL else <object>value


cdef inline void _set_slot(object instance, Py_ssize_t offset, object value) noexcept:
    """Set a slot. The former value is released after it, because that may run code of a user."""
    cdef PyObject **place = penstock_slot(<PyObject *>instance, offset)
    cdef PyObject *former = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *>value
    Py_XDECREF(former)


cdef struct TransactionSlots:
    Py_ssize_t aliases, before, blocks, damage, deleted, doom, entity_types, instances, outbox, outlets, read
    Py_ssize_t request_id, rights, secret, time_us, watched


cdef enum:
    SLOTS_MAX = 64

cdef object _Transaction = None
cdef TransactionSlots _of_txn
cdef Py_ssize_t _all_slots[SLOTS_MAX]
cdef tuple _blanks = ()


cdef int _find_transaction_slots(object cls, object blank) except -1:
    """Find the slots of `Transaction`; `blank` is an instance that has the values of a beginning."""
    global _Transaction, _blanks
    cdef Py_ssize_t index
    names = tuple(cls.__slots__)
    if len(names) > SLOTS_MAX:
        raise TypeError(f"{cls.__name__} has too many slots")
    for index in range(len(names)):
        _all_slots[index] = _offset(cls, names[index])
    _of_txn.aliases, _of_txn.before = _offset(cls, "_aliases"), _offset(cls, "before")
    _of_txn.blocks, _of_txn.damage = _offset(cls, "blocks"), _offset(cls, "damage")
    _of_txn.deleted, _of_txn.doom = _offset(cls, "deleted"), _offset(cls, "_doom")
    _of_txn.entity_types, _of_txn.instances = _offset(cls, "_entity_types"), _offset(cls, "instances")
    _of_txn.outbox, _of_txn.outlets = _offset(cls, "outbox"), _offset(cls, "outlets")
    _of_txn.read, _of_txn.request_id = _offset(cls, "_read"), _offset(cls, "request_id")
    _of_txn.secret, _of_txn.time_us = _offset(cls, "_secret"), _offset(cls, "time_us")
    _of_txn.rights, _of_txn.watched = _offset(cls, "rights"), _offset(cls, "_watched")
    _blanks = tuple([getattr(blank, name) for name in names])
    _Transaction = cls


cdef object _begun(object request_id, object time_us, object read, object entity_types, object secret):
    """Begin a transaction, as `Transaction(…)` does."""
    cdef Py_ssize_t index
    txn = penstock_new_object(<PyTypeObject *>_Transaction, _NO_ARGUMENTS)
    for index in range(PyTuple_GET_SIZE(_blanks)):
        value = _blanks[index]
        if type(value) is dict:
            value = {}
        elif type(value) is list:
            value = []
        _set_slot(txn, _all_slots[index], value)
    _set_slot(txn, _of_txn.request_id, request_id)
    _set_slot(txn, _of_txn.time_us, time_us)
    _set_slot(txn, _of_txn.read, read)
    _set_slot(txn, _of_txn.entity_types, entity_types)
    _set_slot(txn, _of_txn.secret, secret)
    return txn
