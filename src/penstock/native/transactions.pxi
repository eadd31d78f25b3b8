"""References, loading, changes and the end of a transaction; see `penstock.model.context` and `penstock.model.entity`."""

cdef object _refer(Target target, str text, dict instances):
    """Return the reference with the text of a key; None if Python must make it."""
    cdef PyObject *known
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if target.key is None or size == 0 or size >= _short_key and target.key.kind == KEY_TEXT:
        return None
    full = PyUnicode_Concat(target.prefix, text)
    known = PyDict_GetItemWithError(instances, full)
    if known != NULL and <object>known is not None:
        return <object>known
    key = _key_at(target.key, text)
    return None if key is None else _new_reference(target, full, key, instances)


cdef object _new_reference(Target target, object full, object key, dict instances):
    made = penstock_new_object(<PyTypeObject *>target.unloaded, _NO_ARGUMENTS)
    PyObject_GenericSetAttr(made, target.key_name, key)
    PyDict_SetItem(instances, full, made)
    return made


cdef RowPlan _plan_of(object instance):
    """Return the plan of an instance's class; None without one."""
    return _plan_of_class(type(instance))


cdef RowPlan _plan_of_class(object cls):
    cdef PyObject *entity_type = _PyType_Lookup(<PyTypeObject *>cls, "__reference__")
    if entity_type == NULL:
        return None
    plan = (<object>entity_type).row_plan
    return <RowPlan>plan if type(plan) is RowPlan else None


cdef bint _load(object txn, RowPlan plan, object instance) except -1:
    """Turn a reference into the live entity, as `Transaction.load` does; return False to leave it to Python."""
    cdef Target target = plan.target
    cdef PyObject *found
    cdef dict values
    if penstock_frames_left() < FRAMES_SPARE or target.key is None or type(txn) is not _Transaction:
        return False
    attributes = PyObject_GenericGetDict(instance, NULL)
    instances, before = _slot(txn, _of_txn.instances), _slot(txn, _of_txn.before)
    if type(attributes) is not dict or type(instances) is not dict or type(before) is not dict:
        return False
    found = PyDict_GetItemWithError(attributes, target.key_name)
    if found == NULL:
        return False
    name = <object>found
    text = _text_of(target.key, name)
    if text is None:
        return False
    key = PyUnicode_Concat(target.prefix, text)
    if PyDict_SetDefault(instances, key, instance) != <PyObject *>instance:
        return False
    found = PyDict_GetItemWithError(before, key)
    if found == NULL:
        entity_types = _slot(txn, _of_txn.entity_types)
        if type(entity_types) is not dict:
            return False
        found = PyDict_GetItemWithError(entity_types, target.name)
        if found == NULL or <object>found is not target.entity_type:
            return False
        data = _slot(txn, _of_txn.read)(key)
        PyDict_SetItem(before, key, data)
    else:
        data = <object>found
        if key in _slot(txn, _of_txn.deleted):
            return False
    if type(data) is not bytes:
        return False
    values = _decode(plan, name, <bytes>data, <dict>instances)
    if values is None:
        return False
    PyObject_GenericSetAttr(instance, "__dict__", values)
    PyObject_GenericSetAttr(instance, "__class__", target.cls)
    if _slot(txn, _of_txn.watched) is not False:
        txn._note(key)
    return True


def load(txn, entity_type, instance):
    """Turn a reference into the live entity; see `Transaction.load`."""
    plan = entity_type.row_plan
    if type(plan) is not RowPlan or not _load(txn, <RowPlan>plan, instance):
        _python_load(txn, entity_type, instance)


def refer(cls, /, *arguments, **named):
    """Return the reference with a key; see `penstock.model.entity`."""
    cdef RowPlan plan = None
    cdef object made = None
    if type(cls) is type and PyTuple_GET_SIZE(arguments) == 1 and not named and penstock_frames_left() >= FRAMES_SPARE:
        plan = _plan_of_class(cls)
        if plan is not None:
            made = _refer_key(plan.target, arguments[0])
    if made is None:
        made = PyObject_Call(_python_new, (cls, *arguments), named)  # Cython's own call would count as a frame
    return made


cdef object _refer_key(Target target, object key):
    """Return the reference with a key, or that is the key; None if Python must make it."""
    cdef PyObject *active = NULL
    cdef PyObject *known
    cdef str text
    cls = type(key)
    if cls is target.unloaded or cls is target.cls or cls is target.asleep:
        return key
    text = None if target.key is None else _key_text(target.key, key)
    if text is None:
        return None
    PyContextVar_Get(_active, NULL, &active)
    if active == NULL:
        return None
    txn = <object>active
    Py_DECREF(txn)
    instances = _slot(txn, _of_txn.instances) if type(txn) is _Transaction else None
    if type(instances) is not dict:
        return None
    full = PyUnicode_Concat(target.prefix, text)
    known = PyDict_GetItemWithError(instances, full)
    if known != NULL and <object>known is not None:
        return <object>known
    if cls is not target.key.cls or not target.key.is_lasting:
        key = _key_at(target.key, text)
    return None if key is None else _new_reference(target, full, key, <dict>instances)


def made(cls, tuple arguments, dict named):
    """Return a new instance with all its attributes, its class and its key; see `penstock.model.entity`."""
    cdef RowPlan plan = None
    cdef PyObject *active = NULL
    if penstock_frames_left() >= FRAMES_SPARE:
        PyContextVar_Get(_active, NULL, &active)
        if active != NULL:
            Py_DECREF(<object>active)
            plan = _plan_of_class(cls)
    found = None if plan is None else _made(plan, arguments, named)
    return _python_made(cls, arguments, named) if found is None else found


cdef tuple _made(RowPlan plan, tuple arguments, dict named):
    """Return a new instance, its class and its key; None if Python must make it, or say what is wrong."""
    cdef Target target = plan.target
    cdef PyObject *key
    cdef Py_ssize_t index
    cdef str text
    cdef dict values
    entity_type = target.entity_type
    if target.key is None or entity_type.creation is None or entity_type.initializer is not None:
        return None
    if entity_type.constrained_key is not entity_type.key_annotation or PyTuple_GET_SIZE(arguments) > 1:
        return None
    values = named.copy()
    if PyTuple_GET_SIZE(arguments):
        if PyDict_SetDefault(values, target.key_name, arguments[0]) != <PyObject *>arguments[0] or target.key_name in named:
            return None
    key = PyDict_GetItemWithError(values, target.key_name)
    text = None if key == NULL or <object>key is None else _key_text(target.key, <object>key)
    if text is None:
        return None
    for name, default in (<dict?>entity_type.defaults).items():
        if name not in values:
            if not _is_shared(default):
                return None
            values[name] = default
    if PyDict_Size(values) != PyTuple_GET_SIZE(plan.names) + 1:
        return None
    for index in range(PyTuple_GET_SIZE(plan.names)):
        if PyDict_GetItemWithError(values, plan.names[index]) == NULL:
            return None
    if type(<object>key) is not target.key.cls or not target.key.is_lasting:
        lasting = _key_at(target.key, text)
        if lasting is None:
            return None
        PyDict_SetItem(values, target.key_name, lasting)
    instance = penstock_new_object(<PyTypeObject *>target.cls, _NO_ARGUMENTS)
    PyObject_GenericSetAttr(instance, "__dict__", values)
    return entity_type, PyUnicode_Concat(target.prefix, text), instance


cdef bint _is_shared(object default):
    """Say whether entities can share a default, because it never changes."""
    cls = type(default)  # compared by identity: a look-up in a set runs code of its metaclass
    return default is None or cls is int or cls is str or cls is bool or cls is float or cls is bytes


def exists(txn, entity_type, key):
    """Say whether an entity exists now; see `Transaction.exists`."""
    cdef int found = -2
    if penstock_frames_left() >= FRAMES_SPARE and not penstock_is_traced():  # a trace shows the call
        found = _exists(txn, entity_type, key)
    return _python_exists(txn, entity_type, key) if found == -2 else found == 1


cdef int _exists(object txn, object entity_type, object key) except -1:
    """Return 1 if an entity exists now, 0 if it does not, and -2 if Python must say."""
    cdef PyObject *found
    if type(txn) is not _Transaction or type(key) is not str:
        return -2
    instances, before = _slot(txn, _of_txn.instances), _slot(txn, _of_txn.before)
    deleted, entity_types = _slot(txn, _of_txn.deleted), _slot(txn, _of_txn.entity_types)
    if type(instances) is not dict or type(before) is not dict or type(deleted) is not dict:
        return -2
    found = PyDict_GetItemWithError(instances, key)
    if found != NULL:
        cls = type(<object>found)
        if cls is entity_type.cls or cls is entity_type.asleep:
            return 1
    found = PyDict_GetItemWithError(before, key)
    if found == NULL:
        if type(entity_types) is not dict:
            return -2
        found = PyDict_GetItemWithError(entity_types, entity_type.name)
        if found == NULL or <object>found is not entity_type:
            return -2
        data = _slot(txn, _of_txn.read)(key)
        PyDict_SetItem(before, key, data)
    else:
        data = <object>found
    return data is not None and key not in deleted


def create(txn, entity_type, key, instance):
    """Make an instance a new entity; see `Transaction.create`."""
    cdef PyObject *held
    if penstock_frames_left() < FRAMES_SPARE or penstock_is_traced():  # a trace shows the call
        return _python_create(txn, entity_type, key, instance)
    if _exists(txn, entity_type, key) != 0:
        return _python_create(txn, entity_type, key, instance)
    if _slot(txn, _of_txn.watched) is not False:
        return _python_create(txn, entity_type, key, instance)
    held = PyDict_SetDefault(_slot(txn, _of_txn.instances), key, instance)
    if <object>held is not instance:
        return _python_create(txn, entity_type, key, instance)
    return instance


def refer_text(entity_type, text):
    """Return the reference with the text of a key; see `penstock.model.entity`."""
    cdef PyObject *active = NULL
    plan = entity_type.row_plan
    if type(plan) is RowPlan and type(text) is str and penstock_frames_left() >= FRAMES_SPARE:
        PyContextVar_Get(_active, NULL, &active)
        if active != NULL:
            txn = <object>active
            Py_DECREF(txn)
            instances = _slot(txn, _of_txn.instances) if type(txn) is _Transaction else None
            if type(instances) is dict:
                made = _refer((<RowPlan>plan).target, <str>text, <dict>instances)
                if made is not None:
                    return made
    return _python_refer(entity_type, text)


def load_to_get(instance, name):
    """Return an attribute of a reference that is not loaded; see `penstock.model.entity`."""
    cdef PyObject *active = NULL
    cdef PyObject *found
    cdef RowPlan plan = _plan_of(instance)
    cdef Target target
    if plan is None or type(name) is not str or penstock_frames_left() < FRAMES_SPARE:
        return _python_hook(instance, name)
    target = plan.target
    if type(instance) is not target.unloaded or name == "delete" or _is_special(<str>name):
        return _python_hook(instance, name)
    if name == target.key_name:
        attributes = PyObject_GenericGetDict(instance, NULL)
        found = NULL
        if type(attributes) is dict and _PyType_Lookup(<PyTypeObject *>target.unloaded, name) == NULL:
            found = PyDict_GetItemWithError(attributes, name)
        return <object>found if found != NULL else _python_hook(instance, name)
    PyContextVar_Get(_active, NULL, &active)
    if active == NULL:
        return _python_hook(instance, name)
    txn = <object>active
    Py_DECREF(txn)
    if not _load(txn, plan, instance):
        return _python_hook(instance, name)
    return _attribute(target, instance, name)


cdef bint _is_special(str name):
    return len(name) >= 2 and name[0] == "_" and name[1] == "_"


cdef object _attribute(Target target, object instance, object name):
    """Return an attribute of a loaded entity; Python reads it where a function of the user may run."""
    cdef PyTypeObject *cls = <PyTypeObject *>target.cls
    cdef PyObject *found
    cdef PyObject *of_class
    if type(instance) is not target.cls or not penstock_reads_plainly(cls):
        return _python_get(instance, name)
    attributes = PyObject_GenericGetDict(instance, NULL)
    if type(attributes) is not dict:
        return _python_get(instance, name)
    of_class = _PyType_Lookup(cls, name)  # borrowed, as what is found: nothing runs between the two and their use
    found = PyDict_GetItemWithError(attributes, name)
    if of_class == NULL and found != NULL:
        return <object>found
    if found == NULL and of_class != NULL and type(<object>of_class) is FunctionType:
        return PyMethod_New(<object>of_class, instance)
    return _python_get(instance, name)


def changes(txn):
    """Return the changed entities with their new rows; see `Transaction.changes`."""
    return _changes(txn)


cdef object _changes(object txn):
    cdef PyObject *found
    cdef RowPlan plan
    cdef dict changed = {}
    if type(txn) is not _Transaction or _slot(txn, _of_txn.doom) is not None:
        return _python_changes(txn)
    instances, states = _slot(txn, _of_txn.instances), _slot(txn, _of_txn.before)
    deleted = _slot(txn, _of_txn.deleted)
    if type(instances) is not dict or type(states) is not dict or type(deleted) is not dict:
        return _python_changes(txn)
    for key, before in (<dict>states).items():
        found = PyDict_GetItemWithError(instances, key)
        if found != NULL and <object>found is not None:
            instance = <object>found
            plan = _plan_of(instance)
            if plan is None:
                return _python_changes(txn)
            cls = type(instance)
            if cls is plan.target.cls or cls is plan.target.asleep:
                values = PyObject_GenericGetDict(instance, NULL)
                if type(values) is not dict or not _has_key(plan, <dict>values, key):
                    return _python_changes(txn)
                if not (before is None or type(before) is bytes):
                    return _python_changes(txn)
                after = _encode_change(plan, <dict>values, before)
                if after is _FALLBACK:
                    return _python_changes(txn)
                if after is not None:
                    changed[key] = after
                continue
        if before is not None and key in deleted:
            changed[key] = None
    return changed


cdef bint _has_key(RowPlan plan, dict values, object key) except -1:
    """Say whether attributes have the key of an entity."""
    cdef PyObject *name = PyDict_GetItemWithError(values, plan.target.key_name)
    cdef str text
    if name == NULL or plan.target.key is None:
        return False
    text = _text_of(plan.target.key, <object>name)
    return text is not None and (_joins(plan.target.prefix, text, key) or PyUnicode_Concat(plan.target.prefix, text) == key)


cdef bint _joins(str prefix, str text, object key):
    """Say whether a key is a prefix and a text, where all three are ASCII; False where they are not, too."""
    cdef Py_ssize_t before = PyUnicode_GET_LENGTH(prefix), after = PyUnicode_GET_LENGTH(text)
    if type(key) is not str or PyUnicode_GET_LENGTH(key) != before + after:
        return False
    if not (PyUnicode_IS_COMPACT_ASCII(prefix) and PyUnicode_IS_COMPACT_ASCII(text) and PyUnicode_IS_COMPACT_ASCII(key)):
        return False
    return (
        memcmp(PyUnicode_DATA(key), PyUnicode_DATA(prefix), before) == 0
        and memcmp(<char *>PyUnicode_DATA(key) + before, PyUnicode_DATA(text), after) == 0
    )


def release(txn):
    """End the transaction; see `Transaction.release`."""
    _release(txn)


cdef int _release(object txn) except -1:
    cdef object instance
    instances = _slot(txn, _of_txn.instances) if type(txn) is _Transaction else None
    if type(instances) is not dict:
        _python_release(txn)
        return 0
    for key in tuple(<dict>instances):
        instance = (<dict>instances).pop(key)
        if Py_REFCNT(instance) > 1:  # not only this variable
            entity_type = type(instance).__reference__
            if txn.is_live(entity_type, instance):
                txn.unload(entity_type, key, instance)
    if _slot(txn, _of_txn.aliases) or _slot(txn, _of_txn.blocks):
        _python_release(txn)
    return 0
