"""The comparison of names with remembered ones; see `penstock.engine.namespaces`."""


cdef extern from *:
    """
    #define PENSTOCK_CODE(function) (((PyFunctionObject *)(function))->func_code)
    #define PENSTOCK_DEFAULTS(function) (((PyFunctionObject *)(function))->func_defaults)
    #define PENSTOCK_NAMED_DEFAULTS(function) (((PyFunctionObject *)(function))->func_kwdefaults)
    """
    PyObject *PENSTOCK_CODE(object function)
    PyObject *PENSTOCK_DEFAULTS(object function)
    PyObject *PENSTOCK_NAMED_DEFAULTS(object function)


def changed_names(list names, list values):
    """Return the indexes of the dictionaries whose values are not the remembered ones; see `_changed_names`."""
    cdef Py_ssize_t index
    cdef list found = []
    for index in range(PyList_GET_SIZE(names)):
        if not _has_values(<dict?>names[index], <tuple?>values[index]):
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
