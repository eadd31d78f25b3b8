"""The comparison of names with remembered ones; see `penstock.engine.namespaces`."""

from cpython cimport array


cdef extern from *:
    """
    /* Each change of a dictionary gives it a version that no dictionary has had before, and none has version 0. */
    #if PY_VERSION_HEX < 0x030C0000
    #define PENSTOCK_VERSION(names) (((PyDictObject *)(names))->ma_version_tag)
    #else  /* later versions of CPython share the number with other uses, or have none */
    #define PENSTOCK_VERSION(names) ((uint64_t)0)
    #endif

    #define PENSTOCK_CODE(function) (((PyFunctionObject *)(function))->func_code)
    #define PENSTOCK_DEFAULTS(function) (((PyFunctionObject *)(function))->func_defaults)
    #define PENSTOCK_NAMED_DEFAULTS(function) (((PyFunctionObject *)(function))->func_kwdefaults)
    """
    uint64_t PENSTOCK_VERSION(object names)
    PyObject *PENSTOCK_CODE(object function)
    PyObject *PENSTOCK_DEFAULTS(object function)
    PyObject *PENSTOCK_NAMED_DEFAULTS(object function)


def changed_names(list names, list values, array.array versions):
    """Return the indexes of the dictionaries whose values are not the remembered ones; see `_changed_names`."""
    cdef Py_ssize_t index, size = PyList_GET_SIZE(names)
    cdef uint64_t version
    cdef list found = []
    if versions.typecode != "Q" or len(versions) != size:
        raise ValueError("each dictionary needs a version")
    for index in range(size):
        each = <dict?>names[index]
        version = PENSTOCK_VERSION(each)
        if version != 0 and version == versions.data.as_ulonglongs[index]:
            continue  # so the usual look costs one word, and not one for each name
        if _has_values(each, <tuple?>values[index]):
            versions.data.as_ulonglongs[index] = version
        else:
            found.append(index)
    return found


cdef bint _has_values(dict now, tuple before) noexcept:
    """Say whether a dictionary has exactly these values, in this order."""
    cdef Py_ssize_t place = 0, index = 0, size = PyTuple_GET_SIZE(before)
    cdef PyObject *name
    cdef PyObject *value
    if PyDict_Size(now) != size:
        return False
    while index < size and PyDict_Next(now, &place, &name, &value):
        if value != PyTuple_GET_ITEM(before, index):
            return False
        index += 1
    return index == size


def have_changed(list functions, list codes, list defaults, list named_defaults):
    """Say whether functions have another code, or other defaults; see `penstock.engine.namespaces._have_changed`."""
    cdef Py_ssize_t index
    for index in range(PyList_GET_SIZE(functions)):
        function = functions[index]
        if type(function) is not FunctionType:
            raise TypeError("a function of Python is needed")
        if not (
            _is(PENSTOCK_CODE(function), codes[index])
            and _is(PENSTOCK_DEFAULTS(function), defaults[index])
            and _is(PENSTOCK_NAMED_DEFAULTS(function), named_defaults[index])
        ):
            return True
    return False


cdef inline bint _is(PyObject *part, object wanted) noexcept:
    return wanted is None if part == NULL else part == <PyObject *>wanted
