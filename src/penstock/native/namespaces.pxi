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

    /* Bring what is compared soon into the cache: the objects lie far apart, and a handler has used it for others. */
    #if defined(__GNUC__) || defined(__clang__)
    #define PENSTOCK_EXPECT(object) __builtin_prefetch((const char *)(object))
    #define PENSTOCK_EXPECT_FUNCTION(object) (PENSTOCK_EXPECT(object), __builtin_prefetch(&PENSTOCK_CODE(object)))
    #else
    #define PENSTOCK_EXPECT(object) ((void)0)
    #define PENSTOCK_EXPECT_FUNCTION(object) ((void)0)
    #endif

    #define PENSTOCK_BASES(cls) (((PyTypeObject *)(cls))->tp_bases)
    #define PENSTOCK_CODE(function) (((PyFunctionObject *)(function))->func_code)
    #define PENSTOCK_DEFAULTS(function) (((PyFunctionObject *)(function))->func_defaults)
    #define PENSTOCK_NAMED_DEFAULTS(function) (((PyFunctionObject *)(function))->func_kwdefaults)
    """
    uint64_t PENSTOCK_VERSION(object names)
    void PENSTOCK_EXPECT(object names)
    void PENSTOCK_EXPECT_FUNCTION(object function)
    PyObject *PENSTOCK_BASES(object cls)
    PyObject *PENSTOCK_CODE(object function)
    PyObject *PENSTOCK_DEFAULTS(object function)
    PyObject *PENSTOCK_NAMED_DEFAULTS(object function)


cdef enum:
    AHEAD = 12  # so many objects are on their way into the cache


def changed_names(list names, list values, array.array versions):
    """Return the indexes of the dictionaries whose values are not the remembered ones; see `_changed_names`."""
    cdef Py_ssize_t index, size = PyList_GET_SIZE(names)
    cdef uint64_t version
    cdef list found = []
    if versions.typecode != "Q" or len(versions) != size:
        raise ValueError("each dictionary needs a version")
    for index in range(size):
        if index + AHEAD < size:
            PENSTOCK_EXPECT(names[index + AHEAD])
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
    cdef Py_ssize_t index, size = PyList_GET_SIZE(functions)
    for index in range(size):
        if index + AHEAD < size:
            PENSTOCK_EXPECT_FUNCTION(functions[index + AHEAD])
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


def have_kept(list classes, list metaclasses, list bases):
    """Say whether classes have these metaclasses, and these bases; see `penstock.engine.namespaces._have_kept`."""
    cdef Py_ssize_t index
    for index in range(PyList_GET_SIZE(classes)):
        cls = classes[index]
        if not isinstance(cls, type):
            raise TypeError("a class is needed")
        if type(cls) is not metaclasses[index] or not _is(PENSTOCK_BASES(cls), bases[index]):
            return False
    return True


cdef inline bint _is(PyObject *part, object wanted) noexcept:
    return wanted is None if part == NULL else part == <PyObject *>wanted
