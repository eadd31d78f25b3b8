"""Reads of committed state: through the stores of all partitions, and through the writes of a task."""


def stored_read(list fetches, fingerprint, checksum, Py_ssize_t skip, python_read):
    """Return a compiled `get` over stores; see `penstock.state.partitioned_get`.

    Args:
        fetches: The functions that fetch the record of a key, by bucket; their number is a power of two.
        fingerprint: Returns the hash of a key's bytes, as a number.
        checksum: Returns the checksum with which a record begins.
        skip: The bytes of a checksum.
        python_read: The Python function, for missing keys, overlong keys and damage.
    """
    cdef uint64_t last = len(fetches) - 1
    if skip < 1 or len(fetches) & last:
        raise ValueError("a record begins with a checksum, and the number of buckets is a power of two")

    def get(key):
        cdef uint64_t bucket
        if type(key) is not str or penstock_frames_left() < FRAMES_SPARE:
            return python_read(key)
        raw = PyUnicode_AsUTF8String(key)
        bucket = PyLong_AsUnsignedLongLong(fingerprint(raw)) & last
        try:
            stored = fetches[bucket](raw)
        except Exception:  # which Python raises again, or handles
            return python_read(key)
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
