"""Runs the generators of an application against a port, which appends their atoms.

Each atom is appended under the id `{application}/{generator}/{number}`. A generator begins behind the last atom with
such an id, so each atom is on its stream once. It gives this last atom once more, if the log still knows it: so the log
says whether the source still gives the same events. The atom that is due first is appended first.
"""

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Any, Protocol

from penstock.errors import PenstockError, RequestError
from penstock.model.application import App, unknown
from penstock.runtime.generators.run import GeneratorRun, GeneratorState


class AppendPort(Protocol):
    """The place where atoms are appended: a runtime, or a client of a gateway."""

    def append_atom(self, stream: str, events: Sequence[Any], request_id: str) -> int:
        """Append an atom, unless the id is known.

        Returns:
            The microseconds to wait before the same atom is tried again; 0 if it is appended.
        """

    def appended(self, request_id: str) -> "Appended":
        """Say whether an append with this id has been made, at any time."""


@unique
class Appended(Enum):
    """The knowledge of an append: nothing, its events, or only that it was made a long time ago."""

    NEVER = "never"
    KNOWN = "known"
    FORGOTTEN = "forgotten"


class GeneratorRunner:
    """Runs generators, one atom at a time.

    Attributes:
        on_failure: Takes each generator that fails, once.
    """

    def __init__(
        self,
        app: App,
        port: AppendPort,
        names: Sequence[str] | None = None,
        *,
        repeats: bool = True,
    ) -> None:
        """Begin with no generator; each begins at its first atom.

        Args:
            names: The generators; None for all generators of the application.
            repeats: Give the last atom on the stream once more; other code may give other events for it.
        """
        self._names = list(app.topology.generators) if names is None else list(names)
        self._app = app
        self._port = port
        self._repeats = repeats
        self._runs: dict[str, GeneratorRun] = {}
        self.on_failure: Callable[[GeneratorRun], None] = lambda _: None

    def states(self, now_us: int) -> list[GeneratorState]:
        """Return the state of each generator, in the order of the application."""
        return [run.state() for run in self._chosen(None, now_us)]

    def next_due_us(self, now_us: int) -> int | None:
        """Return the time of the next atom; None if no generator is running."""
        running = [run for run in self._chosen(None, now_us) if run.is_running]
        return min((run.due_us for run in running), default=None)

    def step(self, name: str | None, now_us: int, *, early: bool = False) -> GeneratorRun | None:
        """Append the next atom of a generator.

        Args:
            name: The generator; None for the generator whose atom is due first.
            now_us: The time now; an atom that is due later is not appended.
            early: Append the atom before its time, too.

        Returns:
            The generator; None if no atom is due.

        Raises:
            RequestError: The generator does not exist.
        """
        runs = sorted(self._chosen(name, now_us), key=lambda run: (run.due_us, run.atoms))
        for run in runs:
            if (early or run.due_us <= now_us) and self._append(run, now_us):
                return run
        return None

    def _append(self, run: GeneratorRun, now_us: int) -> bool:
        """Append the next atom of a generator; return False if there is no atom, or if it has to wait."""
        if not run.is_running:
            return False
        events = run.peek()
        if events is None:
            if run.cause is not None:
                self.on_failure(run)
            return False
        request_id = self._id_of(run.generator.name, run.atoms)
        try:
            wait_us = self._port.append_atom(run.generator.stream.name, events, request_id)
        except PenstockError as error:
            run.fail(error)
            self.on_failure(run)
            return False
        if wait_us:
            run.due_us = now_us + wait_us
            return False
        run.advance()
        return True

    def _chosen(self, name: str | None, now_us: int) -> list[GeneratorRun]:
        generators = self._app.topology.generators
        if name is not None and name not in generators:
            raise RequestError(unknown("generator", name, generators))
        names = self._names if name is None else [name]
        for wanted in names:
            if wanted not in self._runs:
                atoms = self._appended(wanted)
                repeats = self._repeats and self._is_known(wanted, atoms - 1)
                self._runs[wanted] = GeneratorRun(generators[wanted], atoms - repeats, now_us)
        return [self._runs[wanted] for wanted in names]

    def _is_known(self, name: str, number: int) -> bool:
        """Say whether the log still knows an atom."""
        return number >= 0 and self._port.appended(self._id_of(name, number)) is Appended.KNOWN

    def _appended(self, name: str) -> int:
        """Return the number of atoms of a generator that are appended: with atom n, all before it are."""

        def has(number: int) -> bool:
            return self._port.appended(self._id_of(name, number)) is not Appended.NEVER

        if not has(0):
            return 0
        known = 0
        step = 1
        while has(known + step):
            known += step
            step *= 2
        while step > 1:
            step //= 2
            if has(known + step):
                known += step
        return known + 1

    def _id_of(self, name: str, number: int) -> str:
        return f"{self._app.name}/{name}/{number}"
