"""The call of a method of an entity, and other work, as transactions; see `penstock.engine.execute`.

The compiled methods take no frames. So before code of a user can run, `_take_frames` takes as many from the recursion
limit as the Python methods have at that place: a handler has the same frames in both. After a handler has begun, nothing
is left to the Python methods from the beginning, because a handler runs once.
"""

cdef enum:
    NO_MARK = 0x95  # the first byte of a request that is not cancelled, without the rights of a caller
    WITH_RIGHTS = 0x97
    SETTINGS = 10
    CALL_FRAMES = 2  # the lambda of `run`, `_call`
    RESULT_FRAMES = 1
    LARGE = 0x10000  # from here on, Python encodes a text so that it can run out of memory


cdef struct ExecutorSlots:
    Py_ssize_t app, has_strict_references, limits, read, declared_ms, delivers, escaped, interrupted, isolation
    Py_ssize_t indexed, published, raised, root, running, runs, sampler, secret, signature, stopped, touched


cdef struct IsolationSlots:
    Py_ssize_t base, begun, decimal, depth, filtered, filters, settings


cdef ExecutorSlots _of_executor
cdef IsolationSlots _of_isolation
cdef object _Executor, _Isolation, _Outcome, _Interrupted, _decode_request, _encode, _rights_in
cdef object _python_run, _python_perform
cdef object _every, _run_of_samples, _no_arguments, _no_names
cdef frozenset _without_method
cdef dict _warnings, _system
cdef bytes _nil
cdef dict _nothing = {}
cdef object _interval = sys.getswitchinterval, _digits = sys.get_int_max_str_digits
cdef object _trace = sys.gettrace, _profile = sys.getprofile


def replace_executor(
    cls, isolation, outcome, interrupted, *, decode_request, rights_in, encode, without_method, sampled, bare
):
    """Replace methods of `Executor`; the compiled ones leave all unusual cases to those that they replace.

    Args:
        cls: `Executor`.
        isolation: `Isolation`.
        outcome: `Outcome`.
        interrupted: `Interrupted`.
        decode_request: Reads the body of a request.
        rights_in: Returns the rights of the caller in the body of a request.
        encode: Returns the MessagePack of a value of a built-in type.
        without_method: The methods of requests that `_call` and `_result` treat by themselves.
        sampled: How many transactions are between two observations, and how many are observed.
        bare: The encoded arguments, by position and by name, of a call without arguments.
    """
    global _Executor, _Isolation, _Outcome, _Interrupted, _decode_request, _encode, _without_method, _nil
    global _rights_in, _every, _run_of_samples, _no_arguments, _no_names, _warnings, _system, _python_run, _python_perform
    _rights_in = rights_in
    _Executor, _Isolation, _Outcome, _Interrupted = cls, isolation, outcome, interrupted
    _decode_request, _encode, _without_method = decode_request, encode, frozenset(without_method)
    _nil, _warnings, _system = encode(None), warnings.__dict__, sys.__dict__
    _no_arguments, _no_names = bare
    _every, _run_of_samples = sampled
    _of_executor.app, _of_executor.limits = _offset(cls, "_app"), _offset(cls, "_limits")
    _of_executor.has_strict_references = _offset(cls, "_has_strict_references")
    _of_executor.read, _of_executor.delivers = _offset(cls, "_read"), _offset(cls, "delivers")
    _of_executor.escaped, _of_executor.interrupted = _offset(cls, "escaped"), _offset(cls, "interrupted")
    _of_executor.isolation, _of_executor.published = _offset(cls, "isolation"), _offset(cls, "_published")
    _of_executor.indexed = _offset(cls, "_indexed")
    _of_executor.raised, _of_executor.root = _offset(cls, "raised"), _offset(cls, "root")
    _of_executor.running, _of_executor.runs = _offset(cls, "running"), _offset(cls, "runs")
    _of_executor.sampler, _of_executor.secret = _offset(cls, "sampler"), _offset(cls, "secret")
    _of_executor.stopped, _of_executor.touched = _offset(cls, "stopped"), _offset(cls, "touched")
    _of_executor.signature, _of_executor.declared_ms = _offset(cls, "signature"), _offset(cls, "declared_ms")
    _of_isolation.base, _of_isolation.begun = _offset(isolation, "_base"), _offset(isolation, "_begun")
    _of_isolation.decimal, _of_isolation.settings = _offset(isolation, "_decimal"), _offset(isolation, "_settings")
    _of_isolation.depth = _offset(isolation, "_depth")
    _of_isolation.filters, _of_isolation.filtered = _offset(isolation, "_filters"), _offset(isolation, "_filtered")
    _python_run, _python_perform = cls.run, cls.perform
    cls.run, cls.perform = run, perform


cdef class Call:
    """The call of a method, or of a function, that a request names; a function has no entity type."""

    cdef object request, signature, entity_type


cdef inline void _take_frames(int *taken, int wanted) noexcept:
    """Take frames from the recursion limit, or give them back, until `wanted` are taken."""
    penstock_take_frames(wanted - taken[0])
    taken[0] = wanted


cdef int _frames_before(object isolation, int frames) except? -1:
    """Return how many frames to take, so that as many are left as Python's `_process` has; see `Isolation.enter`.

    Args:
        isolation: The isolation of the transaction.
        frames: Frames before those of `perform`.
    """
    if _slot(isolation, _of_isolation.begun) is not True:
        return frames + PENSTOCK_PROCESS_FRAMES
    return penstock_frames_left() - (<int>_slot(isolation, _of_isolation.depth) + PENSTOCK_DEPTH_FRAMES)


cdef bint _is_usual(object executor, object isolation):
    """Say whether compiled methods may run a transaction."""
    if type(isolation) is not _Isolation:
        return False
    if _slot(isolation, _of_isolation.decimal) is not None:
        return False
    return penstock_frames_left() >= 2 * FRAMES_SPARE


cdef Call _call_of(object app, object body):
    """Return the call that a request asks for; None where it asks for something else."""
    cdef Call call = Call.__new__(Call)
    cdef PyObject *found
    try:
        request = _decode_request(body)
    except Exception:  # which Python raises again
        return None
    name, method = request.entity, request.method
    if method in _without_method or app.is_personal:
        return None
    if not name:
        methods = app.functions if request.key is None else None
    else:
        entities = app.entities
        if type(entities) is not dict or request.key is None:
            return None
        found = PyDict_GetItemWithError(entities, name)
        if found == NULL:
            return None
        call.entity_type = <object>found
        methods = call.entity_type.methods
    if type(methods) is not dict:
        return None
    found = PyDict_GetItemWithError(methods, method)
    if found == NULL:
        return None
    call.request, call.signature = request, <object>found
    return call


def run(self, request_id, body, time_us):
    """Process a request to its end; see `Executor.run`."""
    cdef Call call = None
    if type(self) is _Executor and type(body) is bytes and len(<bytes>body) and (<bytes>body)[0] in (NO_MARK, WITH_RIGHTS):
        if _is_usual(self, _slot(self, _of_executor.isolation)):
            call = _call_of(_slot(self, _of_executor.app), body)
    if call is None:
        return _python_run(self, request_id, body, time_us)
    app = _slot(self, _of_executor.app)
    secret, read = _slot(self, _of_executor.secret), _slot(self, _of_executor.read)
    txn = _begun(request_id, time_us, read, app.entities, secret)
    if _slot(self, _of_executor.delivers):
        _set_slot(txn, _of_txn.outlets, app)
    if (<bytes>body)[0] == WITH_RIGHTS:
        _set_slot(txn, _of_txn.rights, _rights_in(body))
    return _perform(self, txn, call, None, 1)


def perform(self, txn, work):
    """Process a transaction to its end; see `Executor.perform`."""
    if type(self) is _Executor and type(txn) is _Transaction and _is_usual(self, _slot(self, _of_executor.isolation)):
        return _perform(self, txn, None, work, 0)
    return _python_perform(self, txn, work)


cdef object _perform(object executor, object txn, Call call, object work, int frames):
    """Process a transaction to its end, with `frames` before those of `perform`."""
    cdef int taken = 0
    isolation = _slot(executor, _of_executor.isolation)
    _set_slot(executor, _of_executor.interrupted, None)
    _set_slot(executor, _of_executor.escaped, None)
    _set_slot(executor, _of_executor.raised, None)
    _set_slot(executor, _of_executor.root, None)
    _set_slot(executor, _of_executor.signature, None)
    _set_slot(executor, _of_executor.runs, _slot(executor, _of_executor.runs) + 1)
    context = PyContext_Copy(_slot(isolation, _of_isolation.base))
    PyContext_Enter(context)
    try:
        if _slot(isolation, _of_isolation.begun) is True and not _slot(isolation, _of_isolation.settings):
            isolation.enter()  # the first transaction measures the frames
        _take_frames(&taken, _frames_before(isolation, frames))
        PyContextVar_Set(_active, txn)
        reply, writes, failure = _process(executor, isolation, txn, call, work, &taken)
    finally:
        _take_frames(&taken, 0)
        PyContext_Exit(context)
    if not _are_kept(isolation):
        isolation.leave()
    if _slot(executor, _of_executor.declared_ms) is not None:
        executor.declare(None)
    if (
        failure is not None
        or _slot(executor, _of_executor.stopped) is not False
        or _slot(executor, _of_executor.interrupted) is not None
        or _slot(executor, _of_executor.escaped) is not None
        or _slot(txn, _of_txn.damage) is not None
    ):
        return executor._outcome(txn, reply, writes, failure)
    return _Outcome(None, reply, _slot(executor, _of_executor.touched), writes, _slot(txn, _of_txn.outbox) or ())


cdef tuple _process(object executor, object isolation, object txn, Call call, object work, int *taken):
    """Run a transaction in its context: return its reply, its writes and its failure; see `Executor._process`."""
    cdef int frames = taken[0]
    before = _slot(txn, _of_txn.before)
    reply, writes, failure = b"", _nothing, None
    try:
        _set_slot(executor, _of_executor.running, True)
        try:
            reply, writes = PyObject_CallNoArgs(work) if call is None else _result(executor, txn, call, taken)
            _take_frames(taken, frames)
        except BaseException as raised:
            _take_frames(taken, frames)
            isolation.restore_names(everywhere=False)
            failure = executor._describe(raised)
        ended = _end(executor, txn, before)
        failure = failure if ended is None else ended
    except _Interrupted:  # raised inside of a function of the user
        isolation.restore_names(everywhere=False)
        ended = _end(executor, txn, before)
        failure = failure if ended is None else ended
    return reply, writes, failure


cdef tuple _result(object executor, object txn, Call call, int *taken):
    """Call a handler: return its encoded result and the writes; see `Executor._call`."""
    cdef int frames = taken[0] + CALL_FRAMES
    cdef RowPlan plan
    cdef object named = None
    signature, request = call.signature, call.request
    sampler = _slot(executor, _of_executor.sampler)
    _take_frames(taken, frames)
    _set_slot(executor, _of_executor.signature, signature)
    if signature.time_ms is not None:
        executor.declare(signature.time_ms)
    arguments = _arguments_by_position(txn, signature, request)
    if arguments is None:
        arguments, named = signature.decode(request.positional, request.named)
    if sampler is not None:
        _look(executor, sampler, request, signature)
    _take_frames(taken, frames + RESULT_FRAMES)
    if call.entity_type is None:
        arguments = tuple(arguments)
    elif type(call.entity_type.row_plan) is RowPlan:
        plan = <RowPlan>call.entity_type.row_plan
        root, instances = None, _slot(txn, _of_txn.instances)
        if type(request.key) is str and type(instances) is dict:
            root = _refer(plan.target, <str>request.key, <dict>instances)
        if root is None:
            root = call.entity_type.of_text(request.key)
        if not _load(txn, plan, root):
            _python_load(txn, call.entity_type, root)
        arguments = (root, *arguments)
    else:
        root = call.entity_type.of_text(request.key)
        txn.load(call.entity_type, root)
        arguments = (root, *arguments)
    if call.entity_type is not None and call.entity_type.allows is not None:
        executor.require_right(call.entity_type, root, txn)
    if named:  # Cython's own call would count as a frame
        result = PyObject_Call(signature.function, arguments, named)
    else:
        result = PyObject_CallObject(signature.function, arguments)
    _take_frames(taken, frames)
    reply = _reply(executor, signature, result)
    blocks = _slot(txn, _of_txn.blocks)
    writes = _changes(txn) if type(blocks) is list and not blocks else txn.conclude()
    if not _is_plain(executor, txn, signature, len(<bytes>reply), writes):
        executor._check(signature, txn, len(<bytes>reply), writes)
    return reply, writes


cdef tuple _arguments_by_position(object txn, object signature, object request):
    """Return the arguments of a call that has none by name; None if Python must decode them, or find what is wrong with them."""
    cdef bint is_unnamed = request.named == _no_names
    if is_unnamed and request.positional == _no_arguments and not signature._least:
        return _NO_ARGUMENTS
    plan, instances = signature.plan, _slot(txn, _of_txn.instances)
    if type(plan) is not ArgumentsPlan or type(instances) is not dict:
        return None
    heads = signature.heads
    if not is_unnamed and (type(heads) is not tuple or request.named not in <tuple>heads):
        return None
    arguments = _arguments(<ArgumentsPlan>plan, request.positional, <dict>instances)
    if arguments is None or len(arguments) < signature._least:
        return None
    return arguments if is_unnamed or (<tuple>heads)[len(arguments)] == request.named else None


cdef int _look(object executor, object sampler, object request, object signature) except -1:
    """Let the sampler observe a handler; see `Executor._begin_look`."""
    settled = sampler.settled
    runs = _slot(executor, _of_executor.runs)
    if type(settled) is dict and signature in <dict>settled and runs % _every >= _run_of_samples:
        _set_slot(executor, _of_executor.root, (<dict>settled)[signature])
    else:
        executor._begin_look(request, signature)
    return 0


cdef object _reply(object executor, object signature, object result):
    """Return an encoded result; Python encodes what is not of the declared type, and raises the errors."""
    cdef object reply
    if result is None:
        return _nil
    cls, plan = type(result), signature.result_plan
    if cls is int or cls is bool or cls is float or cls is str and len(<str>result) < LARGE:
        try:
            reply = _encode(result)
        except Exception:  # which Python raises again, with its text
            return executor._encode(result)
        if type(reply) is bytes and len(<bytes>reply) <= _slot(executor, _of_executor.limits).reply_bytes:
            return reply
    elif type(plan) is ValuePlan:
        reply = _packed((<ValuePlan>plan).node, result)
        if reply is not None and len(<bytes>reply) <= min(LARGE, _slot(executor, _of_executor.limits).reply_bytes):
            return reply
    return executor._encode(result)


cdef bint _is_plain(object executor, object txn, object signature, Py_ssize_t size, object writes) except -1:
    """Say whether `Executor._check` has nothing to complain about."""
    cdef Py_ssize_t total = size
    before, outbox = _slot(txn, _of_txn.before), _slot(txn, _of_txn.outbox)
    limits = _slot(executor, _of_executor.limits)
    if type(writes) is not dict or type(before) is not dict or type(outbox) is not list or outbox:
        return False
    if writes and (_slot(executor, _of_executor.has_strict_references) is not False or signature.readonly):
        return False
    for data in (<dict>writes).values():
        if data is not None:
            total += len(data)
    published, indexed = _slot(executor, _of_executor.published), _slot(executor, _of_executor.indexed)
    if (published or indexed) and _is_watched(published, indexed, <dict>before, <dict>writes):
        return False
    return len(<dict>before) <= limits.entities and total <= limits.state_bytes and total <= limits.output_bytes


cdef bint _is_watched(object published, object indexed, dict before, dict writes) except -1:
    """Say whether one of the written entities is of a class with a published table, or changes its place in an index."""
    if type(indexed) is not dict:
        return True
    for key, row in writes.items():
        name = (<str>key).partition("/")[0]
        if name in published:
            return True
        if name in <dict>indexed:
            entity_type, former = (<dict>indexed)[name], before.get(key)
            if entity_type.personal or type(row) is not bytes or type(former) is not bytes:
                return True
            if not _has_same(<bytes>former, <bytes>row, entity_type.index_places):
                return True
    return False


cdef object _end(object executor, object txn, object before):
    """Keep the touched keys, and release the entities: return a failure, or None; see `Executor._end`."""
    sampler = _slot(executor, _of_executor.sampler)
    if type(before) is not dict or _slot(executor, _of_executor.escaped) is not None:
        return executor._end(txn, before)
    if sampler is not None and sampler.running is not None:
        return executor._end(txn, before)
    failure = None
    _set_slot(executor, _of_executor.touched, tuple(<dict>before))
    try:
        _release(txn)
    except _Interrupted:
        raise
    except BaseException as raised:
        failure = executor._describe(raised)
    _set_slot(executor, _of_executor.running, False)
    return failure


cdef bint _are_kept(object isolation) except -1:
    """Say whether a transaction has kept the settings of the interpreter; see `Isolation.leave`."""
    if _slot(isolation, _of_isolation.begun) is False:
        return True
    kept = _slot(isolation, _of_isolation.settings)
    filters, filtered = _slot(isolation, _of_isolation.filters), _slot(isolation, _of_isolation.filtered)
    if type(kept) is not tuple or len(<tuple>kept) != SETTINGS:
        return False
    return (
        PyGC_IsEnabled() == (kept[0] is True)
        and Py_GetRecursionLimit() == kept[1]
        and _interval() == kept[2]
        and _digits() == kept[3]
        and _trace() is kept[4]
        and _profile() is kept[5]
        and _warnings.get("filters") is kept[6]
        and _system.get("stdin") is kept[7]
        and _system.get("stdout") is kept[8]
        and _system.get("stderr") is kept[9]
        and filters == filtered
    )


def with_frames(handler, int frames):
    """Return a handler of a signal that has so many more frames than the code that the signal interrupts.

    It takes no frame itself. So it also runs where none is left, where each function of Python raises a `RecursionError`.
    """
    cdef bint is_running = False

    def run(signal_number, frame):
        nonlocal is_running
        if is_running:
            return
        is_running = True
        penstock_take_frames(-frames)
        try:
            handler(signal_number, frame)
        finally:
            penstock_take_frames(frames)
            is_running = False
    return run
