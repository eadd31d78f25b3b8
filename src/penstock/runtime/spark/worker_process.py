"""The process of a Python worker of Spark: one message in, one result out.

A message has the settings of the runtime and a command. The process has one `Worker`, which it keeps between tasks;
when the settings change, because code was deployed, the same worker goes on with the other code.
"""

import gc
import os
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from penstock.errors import (
    ClassChanged,
    EpochFailed,
    IntegrityError,
    Internal,
    OperationalError,
    PenstockError,
    StateUnavailable,
    UserError,
)
from penstock.files.shared_root import be_patient
from penstock.model.request import Failure
from penstock.process import logs
from penstock.process.held_lines import WORKER, hold_lines
from penstock.process.large_pages import HEAP
from penstock.process.metrics import count_store_requests
from penstock.process.process_limits import offer_this_process
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import Reside, Seat, TaskResult
from penstock.runtime.spark.resident_task import answer, serve
from penstock.runtime.spark.stage import Place, Worker
from penstock.runtime.spark.warden import attend

_TRACE_MAX: Final = 8_000
"""Characters of a traceback that a result carries."""

_GARBAGE: Final = 50_000
"""Objects between two collections within a task; transactions leave few cycles."""

_NEW: Final = 5_000
"""Objects that are more than after the last collection, from which on a task is followed by another one."""

_WORKERS: dict[bytes, Worker] = {}
"""The worker of this process by its present settings; at most one."""

_PLACES: list[Place] = []
"""Where this process has the files of its host, if that is not the driver's; at most one."""

_LEFT: set[bytes] = set()
"""The former settings, until the objects of their code are collected."""


def perform(_index: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """Run the commands of a Spark partition; the function of every job."""
    for payload in payloads:  # read to the end, or Spark would not reuse this process
        result = _perform(bytes(payload))
        yield messages.encode(result)
        if result.failure is not None:
            # This process is not used again: a handler may have closed its files or replaced its functions. Spark ends
            # a worker that leaves its input unread.
            return
        if _LEFT:
            _tidy_up()


def _perform(payload: bytes) -> TaskResult:
    """Run one command; return every error as a result, because Spark would pass on only its text."""
    loaded = False
    try:
        message = messages.decode_message(payload)
        match message.command:
            case Reside(job, Seat() as seat):

                def work(warden: Connection, notes: Path) -> None:
                    root, driver = Path(seat.host_data), Path(seat.driver_data)
                    _PLACES.append(
                        Place(root, notes, driver, seat.credentials if seat.answers else b"")
                    )
                    answer(warden, _perform, _tidy_up)

                loaded = True  # this process loads no user code, so an error says what is wrong with the host
                return attend(job, seat, work)
            case Reside(path):
                _worker(message.settings)
                loaded = True
                return serve(path, _perform, _tidy_up)
            case command:
                worker = _worker(message.settings)
                loaded = True
                if message.peers is not None:
                    worker.use_peers(message.peers)
                return worker.perform(command)
    except BaseException as error:  # noqa: BLE001 -- the driver finds the request that causes it
        error_type, text = _described(error, loaded=loaded)
        return TaskResult(failure=Failure(error_type.code, error_type.__name__, text))


def _tidy_up() -> None:
    """Collect garbage, if there may be much of it; Spark collects after each of its tasks."""
    # A collection visits all objects that are not frozen, 2.6 ms, and a small epoch leaves next to none.
    if _LEFT or gc.get_count()[0] >= _NEW:
        gc.collect()
    if _LEFT:
        _LEFT.clear()
        # Code that was deployed later is not frozen, because frozen code is never collected when other code replaces
        # it. It is only frozen if it has many objects, such as those of a library.
        if len(gc.get_objects()) > _GARBAGE:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
    HEAP.after_work()


def _described(error: BaseException, *, loaded: bool) -> tuple[type[PenstockError], str]:
    """Return the class and the message of an error for the driver.

    Args:
        loaded: Whether the worker has loaded its application; code of a deployment may be wrong nevertheless.
    """
    match error:
        case OperationalError() | IntegrityError() | ClassChanged():
            return type(error), str(error)
        case OSError():  # of round outputs and notes; those of handlers do not reach this
            return StateUnavailable, str(error)
        case UserError() if loaded:
            return type(error), str(error)
        case _:
            pass
    if loaded:
        return Internal, _trace_of(error)
    return EpochFailed, f"a worker cannot load the application: {_trace_of(error)}"


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-_TRACE_MAX:]
    except BaseException as another:  # noqa: BLE001 -- its text is user code
        return f"{type(error).__qualname__}, whose traceback raised {type(another).__qualname__}"


def _worker(settings: bytes) -> Worker:
    """Return the worker of this process, with these settings."""
    if (worker := _WORKERS.get(settings)) is not None:
        return worker
    decoded = messages.decode_settings(settings)
    if _WORKERS:
        ((_, worker),) = _WORKERS.items()
        worker.use(decoded)
        _LEFT.update(_WORKERS)  # a collection now would delay the first epoch of the new code
        _WORKERS.clear()
        _WORKERS[settings] = worker
        return worker
    logs.configure(WORKER, decoded.log_format, decoded.log_level)
    hold_lines()
    offer_this_process()
    os.register_at_fork(after_in_child=_end_child)
    be_patient()
    count_store_requests(_PLACES[0].root if _PLACES else Path(decoded.data))
    worker = _WORKERS[settings] = Worker(decoded, *_PLACES)
    gc.collect()
    gc.freeze()  # Spark collects after every task; long-lived objects need not be visited
    gc.set_threshold(_GARBAGE)
    return worker


def _end_child() -> None:
    """End a process that a handler forked: it would continue the task on the same socket."""
    os._exit(os.EX_OK)
