"""Reads of a task: through the stores of all partitions, through its writes, and the columns of its access set."""


def stored_read(
    tuple route, list fetches, list rests, fingerprint, checksum, Py_ssize_t skip, python_read
):
    """Return a compiled `get` over stores; see `penstock.state.stores`.

    Args:
        route: The store of each bucket; the number of buckets is a power of two.
        fetches: The functions of the stores that fetch the record of a key.
        rests: Those that return the state of a key that these have not found.
        fingerprint: Returns the hash of a key's bytes, as a number.
        checksum: Returns the checksum with which a record begins.
        skip: The bytes of a checksum.
        python_read: The Python function, for overlong keys and damage.
    """
    cdef uint64_t last = len(route) - 1
    if skip < 1 or len(route) & last:
        raise ValueError("a record begins with a checksum, and the number of buckets is a power of two")

    def get(key):
        cdef uint64_t bucket = 0
        cdef Py_ssize_t place = 0
        if type(key) is not str or penstock_frames_left() < FRAMES_SPARE:
            return python_read(key)
        raw = PyUnicode_AsUTF8String(key)
        if last:
            bucket = PyLong_AsUnsignedLongLong(fingerprint(raw)) & last
            place = route[bucket]
        try:
            stored = fetches[place](raw)
        except Exception:  # which Python raises again, or handles
            return python_read(key)
        if stored is None:
            return rests[place](raw)
        if type(stored) is not bytes or PyBytes_GET_SIZE(<bytes>stored) < skip:
            return python_read(key)
        size = PyBytes_GET_SIZE(<bytes>stored) - skip
        state = PyBytes_FromStringAndSize(PyBytes_AS_STRING(<bytes>stored) + skip, size)
        digest = checksum(<bytes>raw + <bytes>state)
        if (
            type(digest) is not bytes
            or PyBytes_GET_SIZE(<bytes>digest) != skip
            or memcmp(PyBytes_AS_STRING(<bytes>digest), PyBytes_AS_STRING(<bytes>stored), skip)
        ):
            return python_read(key)
        return state

    return get


def overlaid_read(dict written, here, python_read):
    """Return a compiled read through the writes of a task; see `penstock.engine.task`.

    Args:
        written: The newest state of each entity that the task has written.
        here: Reads the state before the task.
        python_read: The Python function, for errors.
    """

    def read(key):
        cdef PyObject *found = PyDict_GetItemWithError(written, key)
        if found != NULL:
            return <object>found
        if penstock_frames_left() < FRAMES_SPARE:
            return python_read(key)
        try:
            return here(key)
        except BaseException:  # Python reads again, and notes the error
            return python_read(key)

    return read


def access_columns(list noted, fingerprint):
    """Return the columns of an access set, as bytes of uint32, uint64 and bool; see `penstock.engine.task`.

    Args:
        noted: For each transaction its position, the keys that it touched, and a container of the keys that it wrote.
        fingerprint: Returns the hash of a key's bytes, as a number.
    """
    cdef Py_ssize_t count = 0, row = 0
    cdef uint32_t *positions
    cdef uint64_t *entities
    cdef uint8_t *flags
    cdef uint32_t place
    for position, keys, writes in noted:
        count += len(keys)
    position_column = PyBytes_FromStringAndSize(NULL, count * sizeof(uint32_t))
    entity_column = PyBytes_FromStringAndSize(NULL, count * sizeof(uint64_t))
    wrote_column = PyBytes_FromStringAndSize(NULL, count)
    positions = <uint32_t *>PyBytes_AS_STRING(position_column)
    entities = <uint64_t *>PyBytes_AS_STRING(entity_column)
    flags = <uint8_t *>PyBytes_AS_STRING(wrote_column)
    for position, keys, writes in noted:
        place = position
        for key in keys:
            if row == count:
                raise ValueError("the keys have changed")
            positions[row] = place
            entities[row] = PyLong_AsUnsignedLongLong(fingerprint(PyUnicode_AsUTF8String(key)))
            flags[row] = key in writes
            row += 1
    if row != count:
        raise ValueError("the keys have changed")
    return position_column, entity_column, wrote_column
