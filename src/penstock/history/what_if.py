"""What-if: executes a span of the journal's epochs with other code or other requests.

Each epoch runs with the code that executed it, unless the scenario has other code for all. The baseline is the recorded journal. A nondeterministic handler therefore differs without any
change, too; `replay` detects that. Nothing is written but the scratch journal, if one is wanted.
Code that cannot read the stored entities is rejected before any request runs.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from penstock.base.ids import EntityKey, Epoch, RequestId, split_entity_key
from penstock.base.subject_keys import SubjectKeys
from penstock.deployment.loading import Location, load, locate
from penstock.deployment.side_modules import modules_below
from penstock.engine.built_indexes import index_updates, settle_places
from penstock.engine.execute import Limits
from penstock.engine.replay import RecordedEpoch, ValueDifference, apply_changes
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.recorded_cascade import (
    NOTHING,
    AtomDifference,
    CascadeDifference,
    LaterDifference,
    RecordedCascade,
    SentDifference,
    cascade_differences,
    differing_atoms,
)
from penstock.engine.what_if import (
    UNCHANGED,
    DifferenceList,
    EntityDifferences,
    ReplayPlan,
    ReplyDifferences,
    RequestChanges,
    StateDiff,
    entity_differences,
    replay_plan,
)
from penstock.errors import ClassChanged
from penstock.history.cascade_trace import described
from penstock.history.code_versions import CodeVersion, CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import Progress
from penstock.history.rerun import Rerun, frozen_heap
from penstock.history.sandbox import OutsideCall
from penstock.history.scratch_journal import ScratchJournal
from penstock.model.application import App
from penstock.model.catch_up import is_catch_up
from penstock.model.control import Deploy, Prepare, decode_control, is_control
from penstock.model.index_rows import INDEX
from penstock.model.schema_version import Versions
from penstock.model.table_scan import is_scan
from penstock.model.versions.former_class import present_rows
from penstock.model.versions.removed_class import learn_removed
from penstock.model.versions.schema_change import compare_classes


class CausedDifference(NamedTuple):
    """An event, a sent request or a later record that differs, and the record of the log that causes it."""

    epoch: Epoch
    request_id: RequestId
    finding: ValueDifference


class CascadeDifferences:
    """The cascades of a what-if, compared epoch by epoch.

    Attributes:
        atoms: How many atoms differ, by stream.
        events: The events that differ, and whole atoms that only one side has.
        sent: The sent requests that differ, in their call or their outcome.
        later: The later records that differ, in their call or their delay.
        calls: The calls of later records that differ in the what-if, by the id of the record; None if the record is not
            appended.
    """

    def __init__(self, keys: SubjectKeys | None) -> None:
        """Begin without differences; `keys` are those of the persons, None without personal classes."""
        self._keys = keys
        self.atoms: Counter[str] = Counter()
        self.events: DifferenceList[CausedDifference] = DifferenceList()
        self.sent: DifferenceList[CausedDifference] = DifferenceList()
        self.later: DifferenceList[CausedDifference] = DifferenceList()
        self.calls: dict[RequestId, bytes | None] = {}

    def compare(
        self,
        epoch: Epoch,
        request_id: RequestId,
        recorded: RecordedCascade,
        cascade: Cascade | None,
    ) -> None:
        """Compare the cascade of a record.

        Args:
            cascade: Its cascade in the what-if; None if it has caused nothing, or is left out.
        """
        if cascade is None and recorded is NOTHING:
            return
        self.atoms.update(differing_atoms(recorded, cascade, self._keys))
        for difference in cascade_differences(recorded, cascade, self._keys):
            differences = self._list_of(difference)
            if differences is not None and differences.next():
                caused = CausedDifference(epoch, request_id, described(difference))
                differences.shown.append(caused)

    def _list_of(self, difference: CascadeDifference) -> DifferenceList[CausedDifference] | None:
        """Return the list for a difference; None if only the number of an atom's step differs."""
        match difference:
            case AtomDifference(_, _, event, was, now):
                same_events = event is None and _events(was) == _events(now)
                return None if same_events else self.events
            case SentDifference():
                return self.sent
            case LaterDifference(name, _, after):
                # A catch-up has recorded atoms, and a scan has recorded keys.
                if after is None or not (is_catch_up(after.body) or is_scan(after.body)):
                    self.calls[name] = None if after is None else after.body
                return self.later


def _events(atom: Any) -> Any:
    return None if atom is None else atom.events


_OURS: Final = "penstock"


@contextmanager
def alternate_app(spec: str, instead_of: str) -> Iterator[App]:
    """Load another version of an application for the duration of the block."""
    new, old = locate(spec), locate(instead_of)
    path, aside = list(sys.path), _modules_of(old) | _modules_of(new)
    # Both versions may have modules of the same names, and an import finds the loaded one.
    for name in aside:
        del sys.modules[name]
    sys.path[:0] = [part.folder for part in new.applications]
    try:
        yield load(new)
    finally:
        for name in _modules_of(new):
            del sys.modules[name]
        # Handlers that import while they run must get the modules of their own version again.
        sys.modules.update(aside)
        sys.path[:] = path


def _modules_of(location: Location) -> dict[str, ModuleType]:
    """Return the modules in the folders of the applications."""
    folders = {Path(part.folder) for part in location.applications}
    tops = {part.module.partition(".")[0] for part in location.applications}
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if "." not in name and file is not None and _top(Path(file)) in folders:
            tops.add(name)
    tops.discard(_OURS)
    return modules_below(tops)


def _top(file: Path) -> Path:
    """Return the folder from which a module or its package is imported."""
    return file.parent.parent if file.name == "__init__.py" else file.parent


@dataclass(frozen=True, slots=True)
class Scenario:
    """The code and the requests to execute instead of the recorded ones.

    Attributes:
        recorded_by: The present application of the journal.
        app: The application that executes the requests; the same object unless the code differs.
        versions: The code of each epoch, for a scenario without other code; None: `app` executes all epochs.
    """

    recorded_by: App
    app: App
    changes: Mapping[Epoch, RequestChanges] = field(default_factory=dict)
    versions: CodeVersions | None = None

    @property
    def other_code(self) -> bool:
        """Whether other code is executed."""
        return self.app is not self.recorded_by

    def spans(
        self, first: Epoch, last: Epoch
    ) -> Iterator[tuple[App, CodeVersion | None, Epoch, Epoch]]:
        """Yield the code of a range of epochs, with the first and the last epoch that it executes."""
        if self.versions is None:
            yield self.app, None, first, last
        else:
            for version, begin, end in self.versions.spans(first, last):
                yield version.app, version, begin, end


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The result of a scenario.

    Attributes:
        first, last: The first and the last executed epoch.
        requests: How many requests were executed.
        skipped: How many were not executed, because they had exceeded a limit.
        spent_s: The time for executing, reading, comparing and writing, without the state before.
        replies, entities: The differences.
        cascades: The differences between the cascades of the requests: atoms, sent requests, later records.
        refused: The first call to the outside of each request, by its id.
        deployments: The deployments whose code has run, in order; None stands for the present code. Empty with other code.
    """

    first: Epoch
    last: Epoch
    requests: int
    skipped: int
    spent_s: float
    replies: ReplyDifferences
    entities: EntityDifferences
    cascades: CascadeDifferences
    refused: Mapping[RequestId, OutsideCall]
    deployments: tuple[int | None, ...]


def what_if(
    history: HistoryReader,
    scenario: Scenario,
    limits: Limits,
    span: tuple[Epoch, Epoch],
    progress: Progress,
    scratch: Path | None = None,
) -> WhatIf:
    """Execute a span of epochs in a scenario, and compare the results with the journal.

    Args:
        scenario: The code and the requests.
        span: The first and the last epoch.
        progress: Receives each finished epoch.
        scratch: An empty data directory for the resulting epochs; None discards them.
    """
    first, last = span
    state = history.state_before(first)
    check_classes(scenario, history.schemas(), state, first)
    if scenario.other_code and scenario.app.indexes != scenario.recorded_by.indexes:
        apply_changes(state, _index_updates(scenario, state))
    run = _ScenarioRun(history, scenario, limits, state)
    with frozen_heap(), ExitStack() as stack:
        began = time.perf_counter()
        if scratch is not None:
            begun_us, app = history.epoch(first).time_us, scenario.app
            rows = dict(_present_state(app, state))
            journal = ScratchJournal(scratch, app, history.secret, first, rows, begun_us)
            run.scratch = stack.enter_context(journal)
        for app, version, begin, end in scenario.spans(first, last):
            with nullcontext() if version is None else version.active():
                run.begin(app, version)
                for recorded in history.epochs(begin, end):
                    run.epoch(recorded)
                    progress(recorded.epoch, run.requests)
                run.end()
    spent_s = time.perf_counter() - began
    return WhatIf(
        first,
        last,
        run.requests,
        run.skipped,
        spent_s,
        run.replies,
        entity_differences(run.state_diff, state, scenario.recorded_by, scenario.app),
        run.cascades,
        run.refused,
        tuple(dict.fromkeys(run.deployments)),
    )


def _index_updates(
    scenario: Scenario, state: Mapping[EntityKey, bytes]
) -> dict[EntityKey, bytes | None]:
    """Return the changes of a state that give it the indexes of other code."""
    keys = sorted(state)
    settle_places(scenario.app, scenario.recorded_by.indexes)
    return index_updates(
        scenario.app,
        scenario.recorded_by.indexes,
        lambda prefix: [(key, state[key]) for key in keys if key.startswith(prefix)],
    )


def _present_state(app: App, state: Mapping[EntityKey, bytes]) -> Iterator[tuple[EntityKey, bytes]]:
    """Yield the rows of a state as the classes of an application are declared."""
    for key, row in present_rows(app.readable, state.items()):
        if row is not None:
            yield key, row


class _ScenarioRun:
    """Collects the differences while epochs are executed."""

    def __init__(
        self,
        history: HistoryReader,
        scenario: Scenario,
        limits: Limits,
        state: dict[EntityKey, bytes],
    ) -> None:
        self._scenario = scenario
        self._limits = limits
        self._secret = history.secret
        self._schemas = history.schemas()
        self._state = state
        self._rerun: Rerun
        self.scratch: ScratchJournal | None = None
        self.replies = ReplyDifferences()
        self.state_diff = StateDiff()
        self.cascades = CascadeDifferences(scenario.app.keys)
        self.refused: dict[RequestId, OutsideCall] = {}
        self.deployments: list[int | None] = []
        self._requests = self.skipped = 0

    @property
    def requests(self) -> int:
        """How many requests were executed."""
        return self._requests + self._rerun.requests

    def begin(self, app: App, version: CodeVersion | None) -> None:
        """Begin with the epochs of a version of the code."""
        state, recorded = self._state, self.state_diff.recorded
        # Both sides get rows as the classes of this version are declared, so that equal rows are equal as bytes.
        state.update(dict(_present_state(app, state)))
        recorded.update(dict(present_rows(app.readable, recorded.items())))
        # Handlers that wait go on with the new code.
        self._rerun = Rerun(app, state, self._limits, self._secret)
        if version is not None:
            self.deployments.append(version.deployment)

    def end(self) -> None:
        """Count the work of a version."""
        rerun = self._rerun
        self._requests += rerun.requests
        self.skipped += rerun.skipped
        self.refused |= rerun.refused
        rerun.requests = 0

    def epoch(self, recorded: RecordedEpoch) -> None:
        """Execute an epoch, compare it, and write it to the scratch journal."""
        scenario = self._scenario
        if scenario.other_code:
            recorded = _without_builds(recorded)
        wanted = scenario.changes.get(recorded.epoch, UNCHANGED)
        # A later record that the what-if has changed runs changed, unless the scenario itself says
        # otherwise.
        changes = RequestChanges({**self.cascades.calls, **wanted.calls}, wanted.inserted)
        plan = replay_plan(recorded.rows, changes, other_code=scenario.other_code)
        # The first epoch of a scratch journal stores rows of classes that no request has created.
        if recorded.epoch == 0 and not recorded.rows:
            check_classes(scenario, self._schemas, recorded.changes, recorded.epoch)
        self._rerun.begin(recorded, other_code=scenario.other_code)
        outcomes = self._rerun.run_all(plan.rows)
        replayer = self._rerun.replayer
        self.replies.compare(recorded.epoch, plan, outcomes)
        self._compare_cascades(recorded, plan)
        recorded_changes = dict(present_rows(replayer.app.readable, recorded.changes.items()))
        self.state_diff.follow(replayer.state, replayer.written, recorded_changes)
        if self.scratch is not None:
            epoch, time_us = recorded.epoch, recorded.time_us
            self.scratch.commit(epoch, time_us, plan, outcomes, replayer.ran, replayer.written)
        replayer.finish()

    def _compare_cascades(self, recorded: RecordedEpoch, plan: ReplayPlan) -> None:
        """Compare the cascades of an epoch's records; an added or left out record has none on one side."""
        ran = self._rerun.replayer.ran
        for row, was, cascade in zip(plan.rows, plan.recorded, ran, strict=True):
            before = NOTHING if was is None else recorded.cascade(was)
            self.cascades.compare(recorded.epoch, row.request_id, before, cascade)
        for row in plan.left_out:
            self.cascades.compare(recorded.epoch, row.request_id, recorded.cascade(row), None)


def _without_builds(recorded: RecordedEpoch) -> RecordedEpoch:
    """Return an epoch without the index rows that a deployment of recorded code makes: the indexes of other code are others."""
    if not recorded.rows or not is_control(recorded.rows[0].body):
        return recorded
    if not isinstance(decode_control(recorded.rows[0].body), Deploy | Prepare):
        return recorded
    rows = recorded.changes.items()
    others = {key: row for key, row in rows if split_entity_key(key)[0] != INDEX}
    return replace(recorded, changes=others)


def check_classes(
    scenario: Scenario, schemas: Mapping[str, Versions], state: Iterable[EntityKey], epoch: Epoch
) -> None:
    """Check that the classes of a scenario's code read the given entities, and let them read all versions.

    Args:
        schemas: The versions of each stored class.
        epoch: The first epoch that the code executes.
    """
    if not scenario.other_code:
        return
    names = sorted({split_entity_key(key)[0] for key in state} & schemas.keys())
    stored = {name: schemas[name] for name in names}
    refusals = compare_classes(stored, scenario.app.stored, epoch, scenario.app.removed).refusals
    learn_removed(scenario.app, schemas)
    if refusals:
        lines = "".join(f"\n  {line}" for line in refusals)
        raise ClassChanged(
            "classes of the new code cannot read the entities that are stored before the first epoch:"
            f"{lines}\nNo request was run. If the journal reaches back to epoch 0, begin there (--from 0), so that "
            "the new code creates the entities itself"
        )
