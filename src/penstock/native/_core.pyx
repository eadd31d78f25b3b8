# cython: language_level=3, binding=True, annotation_typing=False
"""The compiled twin of the most frequent work of a transaction: rows, references, loading, changes.

Each function does the usual case alone, and leaves every other case to the Python function that it stands for, from
the beginning. So all errors, and all rare types, have one implementation. A function that gives up has done nothing
that the Python function would not do again with the same result.

The same outcome for every behaviour of a handler rests on three rules:

1. No code of a user runs in here: values are of exactly the built-in types that a plan names, or the work is left to Python.
2. Near the recursion limit, where the Python functions could fail, they run. A compiled function takes no frame, so the
   frames of the Python functions are counted as before.
3. Rows come from files, and are checked at each step: a row that is not what the plan expects is left to Python.

`bind_entities` and `replace_methods` get the Python functions, when `penstock.model` is imported. `RowPlan` describes the rows of a class.
"""

import sys
import warnings
from datetime import UTC, datetime

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <structmember.h>

    #ifndef PENSTOCK_SOURCE
    #define PENSTOCK_SOURCE ""  /* the build defines it */
    #endif

    static inline int penstock_frames_left(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyThreadState_Get()->py_recursion_remaining;
    #else
        return PyThreadState_Get()->recursion_remaining;
    #endif
    }

    /* Take frames from those that code of the user has before the recursion limit. */
    static inline void penstock_take_frames(int frames) {
    #if PY_VERSION_HEX >= 0x030C0000
        PyThreadState_Get()->py_recursion_remaining -= frames;
    #else
        PyThreadState_Get()->recursion_remaining -= frames;
    #endif
    }

    /* The frames of `Executor.perform` and `Executor._process`; before 3.12 `Context.run` counts, too. */
    #define PENSTOCK_PROCESS_FRAMES (PY_VERSION_HEX >= 0x030C0000 ? 2 : 3)

    /* The frames of `Isolation.enter` and its `_depth`; before 3.12 `sys.setrecursionlimit` counts, too. */
    #define PENSTOCK_DEPTH_FRAMES (PY_VERSION_HEX >= 0x030C0000 ? 2 : 3)

    /* Whether a trace function of Python sees the calls of this thread. */
    static inline int penstock_is_traced(void) {
        return PyThreadState_Get()->c_tracefunc != NULL;
    }

    static inline PyObject **penstock_slot(PyObject *instance, Py_ssize_t offset) {
        return (PyObject **)((char *)instance + offset);
    }

    /* The place of a slot for an object that its descriptor describes; 0 if it is no such descriptor. */
    static Py_ssize_t penstock_slot_offset(PyObject *descriptor) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return 0;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }

    /* Whether attributes of a type are read in the usual way, without a function of the user. */
    static inline int penstock_reads_plainly(PyTypeObject *type) {
        return type->tp_getattro == PyObject_GenericGetAttr;
    }

    static inline void *penstock_comparison(PyTypeObject *type) {
        return (void *)type->tp_richcompare;
    }

    static inline PyObject *penstock_new_object(PyTypeObject *type, PyObject *no_arguments) {
        return PyBaseObject_Type.tp_new(type, no_arguments, NULL);
    }

    /* Make an instance of a subclass of tuple, as `tuple.__new__` does. */
    static inline PyObject *penstock_new_tuple(PyTypeObject *type, PyObject *items) {
        PyObject *made, *arguments = PyTuple_Pack(1, items);
        if (arguments == NULL) return NULL;
        made = PyTuple_Type.tp_new(type, arguments, NULL);
        Py_DECREF(arguments);
        return made;
    }

    /* Whether a class lets its instances keep an attribute by themselves: in their dictionary, or in a slot. */
    static inline int penstock_keeps(PyTypeObject *type, PyObject *name) {
        PyObject *found = _PyType_Lookup(type, name);
        return found == NULL || Py_IS_TYPE(found, &PyMemberDescr_Type)
            || (Py_TYPE(found)->tp_descr_get == NULL && Py_TYPE(found)->tp_descr_set == NULL);
    }

    static inline uint64_t penstock_load_be(const uint8_t *from, int width) {
        uint64_t value = 0;
        for (int index = 0; index < width; index++) value = (value << 8) | from[index];
        return value;
    }

    static inline void penstock_store_be(uint8_t *to, uint64_t value, int width) {
        for (int index = width - 1; index >= 0; index--) { to[index] = (uint8_t)value; value >>= 8; }
    }
    """
    const char *PENSTOCK_SOURCE
    int PENSTOCK_PROCESS_FRAMES
    int PENSTOCK_DEPTH_FRAMES
    int penstock_frames_left()
    void penstock_take_frames(int frames)
    int penstock_is_traced()
    PyObject **penstock_slot(PyObject *instance, Py_ssize_t offset)
    Py_ssize_t penstock_slot_offset(object descriptor)
    int penstock_reads_plainly(PyTypeObject *type)
    void *penstock_comparison(PyTypeObject *type)
    object penstock_new_object(PyTypeObject *type, object no_arguments)
    object penstock_new_tuple(PyTypeObject *type, object items)
    int penstock_keeps(PyTypeObject *type, object name)
    uint64_t penstock_load_be(const uint8_t *source, int width) nogil
    void penstock_store_be(uint8_t *to, uint64_t value, int width) nogil
    PyObject *_PyType_Lookup(PyTypeObject *type, object name)
    object PyObject_GenericGetDict(object instance, void *context)
    object PyObject_GenericGetAttr(object instance, object name)
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1
    object PyObject_CallNoArgs(object function)
    object PyObject_CallOneArg(object function, object argument)
    object PyObject_Call(object function, object arguments, object named)
    object PyObject_CallObject(object function, object arguments)
    object PyContext_Copy(object context)
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1
    object PyContextVar_Set(object variable, object value)
    int PyGC_IsEnabled()
    int Py_GetRecursionLimit()
    int PyContextVar_Get(object variable, PyObject *default, PyObject **value) except -1
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject *PyDict_SetDefault(object mapping, object key, object default) except NULL
    object PyMethod_New(object function, object instance)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    int PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    object PyUnicode_Concat(object left, object right)
    object PyUnicode_AsUTF8String(object text)
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    uint64_t PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF
    Py_ssize_t Py_REFCNT(object instance)

    ctypedef class types.FunctionType [object PyFunctionObject]:
        pass


SOURCE = PENSTOCK_SOURCE.decode()
"""The digest of the source that this module was built from."""

FALLBACK = object()
"""What a compiled function returns to say that the Python function must do the work."""

cdef object _FALLBACK = FALLBACK
cdef tuple _NO_ARGUMENTS = ()
cdef enum:
    FRAMES_SPARE = 128  # more than the Python functions take, with values nested as deeply as a plan can be
    INLINE_BYTES = 1024
    SKIP_DEPTH_MAX = 8
    ANY_DEPTH_MAX = 32

cdef object _active, _python_hook, _python_get, _python_load, _python_new, _python_refer, _python_changes, _python_release
cdef object _python_made, _python_exists, _python_create
cdef Py_ssize_t _short_key = 0


def bind_entities(*, active, short_key, load_to_get, get_loaded, refer, refer_text, made):
    """Take the Python functions of references, to which the compiled functions leave all unusual cases.

    Args:
        active: The context variable of the running transaction.
        short_key: A key with fewer characters needs no check.
        load_to_get: The hook of references that are not loaded.
        get_loaded: Returns an attribute of an entity that has been loaded.
        refer: Returns the reference with a key: the `__new__` of entity classes.
        refer_text: Returns the reference with the text of a key.
        made: Returns a new instance, with its class and its key.
    """
    global _active, _short_key, _python_hook, _python_get, _python_new, _python_refer, _python_made
    _active, _short_key = active, short_key
    _python_hook, _python_get, _python_new, _python_refer = load_to_get, get_loaded, refer, refer_text
    _python_made = made


def replace_methods(cls, blank):
    """Replace methods of `Transaction`; the compiled ones leave all unusual cases to those that they replace.

    Args:
        cls: `Transaction`.
        blank: A transaction that has not begun.
    """
    global _python_load, _python_changes, _python_release, _python_exists, _python_create
    _find_transaction_slots(cls, blank)
    _python_load, _python_changes, _python_release = cls.load, cls.changes, cls.release
    _python_exists, _python_create = cls.exists, cls.create
    cls.load, cls.changes, cls.release, cls.exists, cls.create = load, changes, release, exists, create


include "slots.pxi"
include "keys.pxi"
include "row_plan.pxi"
include "row_reader.pxi"
include "row_writer.pxi"
include "transactions.pxi"
include "indexes.pxi"
include "executor.pxi"
include "namespaces.pxi"
include "reads.pxi"
