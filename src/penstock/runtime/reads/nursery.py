"""The process that forks the readers of a gateway, and forks another one when a reader dies.

    python -m penstock.runtime.reads.nursery CONTROL

A fork starts much faster than a new interpreter, because the modules are loaded once. The nursery runs
no user code: each reader loads the application itself. CONTROL is the descriptor of a Unix socket. Over it
the gateway sends the `ReaderSettings` of each pool of readers, and a socket for the pool: one at the start of the
gateway, and another one for each deployment. For each reader the nursery sends its process id and a socket, over which
the gateway asks questions. The gateway sends the process id of a reader that must be killed. When it closes the socket
of a pool, the nursery ends the readers of the pool, and then closes the socket, too. The nursery ends when
the gateway closes CONTROL or dies. The readers end with the nursery, also if it is killed while they load the application.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from math import inf
from typing import IO, Final, NoReturn

from penstock.deployment.loading import load_app
from penstock.files.private import keep_private
from penstock.process import logs
from penstock.process.large_pages import HEAP
from penstock.process.process_limits import (
    end_with_parent,
    keep_libraries_single,
    offer_this_process,
)
from penstock.process.question import question_in
from penstock.runtime.reads.messages import (
    LENGTH_BYTES,
    Encoding,
    Message,
    Question,
    ReaderSettings,
    Ready,
    Upcasting,
    decode_question,
    framed,
)

PID_BYTES: Final = 8
_YOUNG_S: Final = 1.0
_PAUSE_S: Final = 0.2
"""The pause after the death of a reader that was younger than `_YOUNG_S`, to save processor time."""

_PAUSE_MAX_S: Final = 10.0
"""The longest pause: it doubles with each reader in a row that cannot load the application."""

_GARBAGE: Final = 50_000
"""Objects between two collections, as in a worker."""


class Brood:
    """The readers of one pool: so many as its settings say, until the gateway closes its socket."""

    def __init__(self, settings: ReaderSettings, control: socket.socket) -> None:
        self.settings = settings
        self.control = control
        self._born_s: dict[int, float] = {}
        self._failures = 0
        self._resume_s = 0.0
        self.is_ending = False

    @property
    def pause_s(self) -> float:
        """In how many seconds another reader must be forked; 0 or less: now; infinite: no reader is missing."""
        if self.is_ending or len(self._born_s) >= self.settings.count:
            return inf
        return self._resume_s - time.monotonic()

    @property
    def is_gone(self) -> bool:
        """Whether the gateway has closed its socket, and all its readers have ended."""
        return self.is_ending and not self._born_s

    def add(self, pid: int, channel: socket.socket) -> None:
        """Take a reader that was forked, and send its socket to the gateway."""
        self._born_s[pid] = time.monotonic()
        with suppress(
            OSError
        ):  # the gateway has closed the socket of the pool, which `obey` will see
            socket.send_fds(self.control, [pid.to_bytes(PID_BYTES)], [channel.fileno()])

    def obey(self) -> None:
        """Kill the reader that the gateway names; all of them if it has closed its socket."""
        order = b""
        with suppress(OSError):
            order = self.control.recv(PID_BYTES, socket.MSG_WAITALL)
        pid = int.from_bytes(order)
        if pid in self._born_s:
            os.kill(pid, signal.SIGKILL)
        if not order:
            self.end()

    def end(self) -> None:
        """Kill all readers, and fork no others."""
        self.is_ending = True
        for pid in self._born_s:
            os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Forget the readers that have died; pause the next fork if they died young."""
        now_s = time.monotonic()
        for pid in list(self._born_s):
            dead, status = os.waitpid(pid, os.WNOHANG)
            if not dead:
                continue
            has_failed = os.waitstatus_to_exitcode(status) == os.EX_SOFTWARE
            self._failures = self._failures + 1 if has_failed else 0
            if now_s - self._born_s.pop(pid) < _YOUNG_S or has_failed:
                pause_s = min(_PAUSE_S * 2 ** min(self._failures, 10), _PAUSE_MAX_S)
                self._resume_s = now_s + pause_s


class Nursery:
    """Keeps the readers of all pools running until the gateway closes its socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._broods: list[Brood] = []
        self._deaths, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._deaths, False)

    def run(self) -> None:
        """Take pools, fork their readers, end the ones that the gateway names, and replace the dead ones."""
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        try:
            while True:
                for brood in self._broods:
                    while brood.pause_s <= 0:
                        self._fork(brood)
                ready = self._ready()
                for brood in self._broods:
                    if brood.control.fileno() in ready:
                        brood.obey()
                if self._control.fileno() in ready and not self._take():
                    return
                self._reap()
        finally:
            for brood in self._broods:
                brood.end()

    def _ready(self) -> set[int]:
        """Wait for the gateway, for the death of a reader or for the end of a pause; return the numbers of what can be read."""
        pause_s = min((brood.pause_s for brood in self._broods), default=inf)
        poll = select.poll()
        asking = [brood.control.fileno() for brood in self._broods if not brood.is_ending]
        for watched in (self._control.fileno(), self._deaths, *asking):
            poll.register(watched, select.POLLIN)
        ready = poll.poll(None if pause_s == inf else max(pause_s, 0.0) * 1_000)
        return {number for number, _ in ready}

    def close_all(self) -> None:
        """Close all descriptors of the nursery: a reader needs none of them, and must keep no socket of the gateway open."""
        os.close(self._deaths)
        os.close(self._bell)
        self._control.close()
        for brood in self._broods:
            brood.control.close()

    def _take(self) -> bool:
        """Take another pool; return False if the gateway has ended."""
        with suppress(OSError):
            length, descriptors, _, _ = socket.recv_fds(self._control, LENGTH_BYTES, 1)
            if len(length) < LENGTH_BYTES or not descriptors:
                return False
            control = socket.socket(fileno=descriptors[0])
            size = int.from_bytes(length)
            settings = self._control.recv(size, socket.MSG_WAITALL)
            if len(settings) < size:
                return False
            self._broods.append(Brood(question_in(settings, ReaderSettings), control))
            return True
        return False

    def _fork(self, brood: Brood) -> None:
        ours, theirs = socket.socketpair()
        nursery = os.getpid()
        pid = os.fork()
        if not pid:
            end_with_parent(nursery)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.close_all()
            ours.close()
            _live(brood.settings, theirs)
        theirs.close()
        with ours:
            brood.add(pid, ours)

    def _reap(self) -> None:
        """Take note of the readers that have died, and let go of the pools whose readers have all ended."""
        with suppress(BlockingIOError):
            os.read(self._deaths, 4_096)
        for brood in list(self._broods):
            brood.reap()
            if brood.is_gone:
                brood.control.close()  # tells the gateway that the readers of the pool have ended
                self._broods.remove(brood)


def _noted(_signal: int, _frame: object) -> None:
    """Handle SIGCHLD: the wake-up descriptor has told of it."""


def _live(settings: ReaderSettings, channel: socket.socket) -> NoReturn:
    """Be a reader until the gateway closes the channel."""
    try:
        with channel.makefile("rb") as questions, channel.makefile("wb") as answers:
            _serve(settings, questions, answers)
        os._exit(os.EX_OK)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(os.EX_OK)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:  # a child must not run the cleanup of its parent
        os._exit(os.EX_SOFTWARE)


def _serve(settings: ReaderSettings, questions: IO[bytes], answers: IO[bytes]) -> None:
    from penstock.runtime.reads.reader import CallReader, encoded  # noqa: PLC0415 -- loaded by `main`

    logs.configure("reader", settings.log_format, settings.log_level)
    offer_this_process()
    os.register_at_fork(after_in_child=_end_child)
    app = load_app(settings.spec)
    reader = CallReader(app, settings.data, settings.limits)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    _send(answers, Ready())
    while (question := _next(questions)) is not None:
        if isinstance(question, Question):
            for message in reader.answer(question):
                _send(answers, message)
        else:
            _send(answers, encoded(app, settings.sizes, question))
        HEAP.after_work()


def _end_child() -> None:
    """End a process that a handler forked: it would answer on the same channel."""
    os._exit(os.EX_OK)


def _next(questions: IO[bytes]) -> Question | Encoding | Upcasting | None:
    """Return the next question; None when the gateway has closed the channel."""
    length = questions.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return decode_question(questions.read(int.from_bytes(length)))


def _send(answers: IO[bytes], message: Message) -> None:
    answers.write(framed(message))
    answers.flush()


def main() -> None:
    """Load the modules of readers, and run the nursery."""
    keep_private()
    keep_libraries_single()
    # They may go to the whole group, as those of a terminal do: the gateway ends its readers when it has answered.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the text that handlers print
    import penstock.runtime.reads.reader  # noqa: F401, PLC0415 -- after the environment is set

    gc.collect()
    gc.freeze()
    Nursery(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
