"""The mutants: named ways to break the engine, each with the test that must find it; `mutants` runs them."""

from dataclasses import dataclass
from pathlib import Path

SRC = Path("src/penstock")

TWINS = "tests/differential/test_engine_twins.py"
SERIAL = f"{TWINS}::test_serial_runtime_means_what_programs_say"
ENGINE = f"{TWINS}::test_engine_equals_one_thread"
TANGLE = f"{TWINS}::test_tangle_equals_one_thread"
HOSTS = f"{TWINS}::test_hosts_equal_one_thread"
REPEATED = f"{TWINS}::test_repeated_request_has_one_reply"
EPOCHS = "tests/differential/test_epoch_twins.py"
CONFLICTS = "tests/unit/engine/test_conflicts.py"
ESCAPES = "tests/unit/engine/test_task.py::test_escape_leaves_nothing_behind"
OUTCOMES = "tests/unit/engine/test_execute.py"
IDS = "tests/conformance/test_log.py::test_repeated_id_gets_the_first_position"
SCHEDULE = "tests/conformance/test_log_schedule.py"
DIVISION = (
    "tests/differential/test_epoch_division.py"
    "::test_one_request_is_set_aside_in_a_bounded_number_of_attempts"
)
HOSTILE = "tests/hostile/test_hostile_twins.py"
EXCEPTIONS = f"{HOSTILE}::test_every_exception_is_the_outcome_of_its_request"
RESULTS = f"{HOSTILE}::test_every_result_is_the_outcome_of_its_request"
SAMPLER = "tests/unit/engine/test_calls.py::test_a_sampler_that_fails_is_dropped"
WAITING = f"{SCHEDULE}::test_waiting_id_is_not_appended_before_it_is_due"
CASCADES = "tests/differential/test_epoch_cascades.py"
STREAMS = "tests/streams"
TABLES = f"{STREAMS}/test_published_tables.py"
SIMULATION = "tests/simulation/test_simulation.py::test_nothing_is_lost_doubled_or_overtaken"
DUE = f"{SCHEDULE}::test_scheduled_entry_is_appended_when_due"


@dataclass(frozen=True)
class Mutant:
    """One way to break it: in `file` the text `good`, which occurs once, becomes `bad`."""

    name: str
    file: str
    good: str
    bad: str
    test: str

    def complaint(self, top: Path) -> str | None:
        """Say why this mutant cannot be made from a tree, if it cannot."""
        source = (top / SRC / self.file).read_text()
        found = source.count(self.good)
        if found != 1:
            return f"{self.file} has {found} times, not once: {self.good!r}"
        try:
            compile(self.infected(source), self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"with the replacement {self.file} is no Python: {error}"
        return None

    def infected(self, source: str) -> str:
        """Return the source of the module with the replacement."""
        return source.replace(self.good, self.bad)


MUTANTS = (
    Mutant(
        "validation is skipped",
        "engine/step.py",
        "        if self._ran_in_one_task():\n",
        "        if self.rounds:\n",
        TANGLE,
    ),
    Mutant(
        "finished components are not validated again",
        "engine/step.py",
        "again = np.flatnonzero(self._unfinished(labels))",
        "late = self._run >= self.rounds * self.tasks\n"
        "        again = np.flatnonzero(self._unfinished(labels) & late)",
        TANGLE,
    ),
    Mutant(
        "only the last round's touches count",
        "engine/step.py",
        "self.accesses = self.accesses.union(",
        "self.accesses = AccessSet.empty().union(",
        TANGLE,
    ),
    Mutant(
        "escapes are ignored",
        "engine/step.py",
        "self._escaped[result.escaped] = True",
        "self._escaped[result.escaped] = False",
        HOSTS,
    ),
    Mutant(
        "rows of the round before stay valid",
        "engine/step.py",
        "self._run >= (number + 1) * self.tasks",
        "self._run >= (number + 2) * self.tasks",
        TANGLE,
    ),
    Mutant(
        "nothing is shipped",
        "engine/step.py",
        "if self._hosts is None or self.accesses.position.size == 0:",
        "if True:",
        HOSTS,
    ),
    Mutant(
        "wrong order inside a task",
        "engine/order.py",
        "    return [positions[task_of == task] for task in range(tasks)]",
        "    return [positions[task_of == task][::-1] for task in range(tasks)]",
        ENGINE,
    ),
    Mutant(
        "readers do not join writers",
        "engine/access.py",
        "joins = np.repeat(written, np.diff(begins, append=entity.size))",
        "joins = accesses.wrote[order]",
        TANGLE,
    ),
    Mutant(
        "an entity that nobody wrote joins its readers",
        "engine/access.py",
        "written = np.logical_or.reduceat(accesses.wrote[order], begins)",
        "written = np.ones(begins.size, np.bool_)",
        CONFLICTS,
    ),
    Mutant(
        "deleted entities rise inside a task",
        "engine/task.py",
        "            if key in written:\n",
        "            if written.get(key) is not None:\n",
        ENGINE,
    ),
    Mutant(
        "touches of aborted transactions are forgotten",
        "engine/task.py",
        "        if self._tracked:\n            reads",
        "        if self._tracked and outcome.error is None:\n            reads",
        ENGINE,
    ),
    Mutant(
        "an abort keeps its writes",
        "engine/execute.py",
        "                failure = self._describe(raised)\n",
        "                _NOTHING.clear()\n"
        "                _NOTHING.update(txn.changes())\n"
        "                failure = self._describe(raised)\n",
        SERIAL,
    ),
    Mutant(
        "only exceptions of the usual kind end in an outcome",
        "engine/execute.py",
        "            except BaseException as raised:  # noqa: BLE001 -- user code may raise any exception\n",
        "            except Exception as raised:\n",
        OUTCOMES,
    ),
    Mutant(
        "an exception's own code is believed",
        "engine/failure.py",
        "type(code) is str and _CODE.fullmatch(code) is not None",
        "code is not None",
        OUTCOMES,
    ),
    Mutant(
        "an exception's text may raise",
        "engine/failure.py",
        "    except BaseException as error:  # noqa: BLE001 -- a `__str__` of user code\n",
        "    except ValueError as error:\n",
        EXCEPTIONS,
    ),
    Mutant(
        "an exception is asked for its class",
        "engine/failure.py",
        "    error_type = type(raised)  #",
        "    error_type = raised.__class__  #",
        EXCEPTIONS,
    ),
    Mutant(
        "the sampler's failure is the handler's",
        "engine/execute.py",
        "        except Exception:  # noqa: BLE001 -- statistics are dropped, the request goes on\n"
        "            self.sampler = None\n",
        "        except RecursionError:\n            self.sampler = None\n",
        SAMPLER,
    ),
    Mutant(
        "bytes in a reply are sent as they come",
        "base/lowering.py",
        "isinstance(value, msgspec.Raw)",
        "isinstance(value, msgspec.UnsetType)",
        RESULTS,
    ),
    Mutant(
        "an epoch that fails is not divided by halves",
        "runtime/spark/division.py",
        "return max(1, self.suspects // 2) if self.suspects else self._width",
        "return max(1, self.suspects - 1) if self.suspects else self._width",
        DIVISION,
    ),
    Mutant(
        "a swallowed escape takes effect",
        "engine/execute.py",
        "        if self.escaped is not None:  # even if the handler has caught it\n"
        "            raise Escape(self.escaped)\n",
        "        if self.escaped is not None and failure is not None:\n"
        "            raise Escape(self.escaped)\n",
        ESCAPES,
    ),
    Mutant(
        "a savepoint restores nothing",
        "model/savepoint.py",
        "            self.restore()\n",
        "            pass\n",
        SERIAL,
    ),
    Mutant(
        "an entity sleeps although a variable holds its list",
        "model/savepoint.py",
        "        if is_private(instance, known) and ",
        "        if ",
        SERIAL,
    ),
    Mutant(
        "a caught violation of @readonly is forgiven",
        "model/context.py",
        "        if self._doom is not None:\n            raise self._doom\n",
        "",
        SERIAL,
    ),
    Mutant(
        "the serial runtime takes a request twice",
        "runtime/local/runtime.py",
        "        if known is not None:\n",
        "        if False:\n",
        REPEATED,
    ),
    Mutant(
        "the log takes a request twice",
        "log/sqlite.py",
        "            self._index.seen(connection, id_hashes, now_s),\n",
        "            {},\n",
        IDS,
    ),
    Mutant(
        "a request that waits is appended all the same",
        "log/sqlite.py",
        "            schedule.find(connection, id_hashes, str(self._path)),\n",
        "            {},\n",
        WAITING,
    ),
    Mutant(
        "a cancelled request runs",
        "engine/execute.py",
        "        if is_cancelled(body):\n",
        "        if False:\n",
        f"{OUTCOMES}::test_cancelled_request_runs_nothing",
    ),
    Mutant(
        "what was promoted still waits",
        "log/schedule.py",
        "[(row.number,) for row in taken]",
        "[(row.number,) for row in taken[1:]]",
        DUE,
    ),
    Mutant(
        "superseded rows are kept",
        "runtime/spark/rows.py",
        "    if not superseded.size:\n",
        "    if True:\n",
        ENGINE,
    ),
    Mutant(
        "an epoch is told before its commit",
        "runtime/spark/driver.py",
        "        self._commit(epoch, ranges, count, results)\n",
        "        self._tell(EpochReport(epoch=epoch, time_us=0, records=count, aborts=0,"
        " rounds=run.rounds, reran=run.reran, tasks=tasks, phases_ms={}))\n"
        "        self._commit(epoch, ranges, count, results)\n",
        EPOCHS,
    ),
    Mutant(
        "a restarted driver begins at the log's start",
        "runtime/spark/driver.py",
        "        self._positions.update({} if last is None else last.positions)\n",
        "",
        EPOCHS,
    ),
    Mutant(
        "the last round alone is published",
        "runtime/spark/rounds.py",
        "outputs=self._valid(task) if publish else [],",
        "outputs=[],",
        EPOCHS,
    ),
    Mutant(
        "state is an epoch old",
        "runtime/spark/stage.py",
        "self._stores.at(Epoch(command.epoch - 1)) as stores:\n                self._prefetch",
        "self._stores.at(Epoch(max(-1, command.epoch - 2))) as stores:\n                self._prefetch",
        EPOCHS,
    ),
    Mutant(
        "a state that equals the defaults again is not stored",
        "engine/streams/workflow_step.py",
        "for key in sorted(self.changed - self.cleared):",
        "for key in ():",
        f"{STREAMS}/test_task_defaults.py::test_only_clear_removes_the_state_of_a_key",
    ),
    Mutant(
        "an event overtakes the waiting handler of its key",
        "engine/streams/workflow_step.py",
        "if lines.is_blocked(task, place):",
        "if False:",
        f"{STREAMS}/test_cases.py::test_case",
    ),
    Mutant(
        "the reads of a handler that has waited are not noted from its start",
        "engine/streams/workflow_step.py",
        "is_noted = noted_as in task.noted",
        "is_noted = False",
        f"{STREAMS}/test_direct_tasks.py::test_direct_tasks",
    ),
    Mutant(
        "a savepoint keeps the events of its block",
        "model/savepoint.py",
        "        del txn.outbox[self.sent :]\n",
        "",
        f"{STREAMS}/test_emitting.py::test_a_savepoint_undoes_its_events",
    ),
    Mutant(
        "the questions of a failed step stay without answer",
        "engine/streams/cascade_runner.py",
        "            cascade.push_all(failed_answers(step.questions, failure))",
        "            pass",
        f"{STREAMS}/test_failures.py::test_a_failed_reply_is_an_exception",
    ),
    Mutant(
        "a handler waits for a request that was set aside",
        "engine/task.py",
        "        if self.cascades is not None and MARK in request_id:\n",
        "        if False:\n",
        "tests/differential/test_later_records.py::test_a_handler_does_not_wait_for_a_request_that_was_set_aside",
    ),
    Mutant(
        "the workflow steps of an epoch of several tasks are forgotten",
        "runtime/spark/rounds.py",
        "*([plan.steps(shares)] if flows else [])",
        "",
        CASCADES,
    ),
    Mutant(
        "workflow steps that overlap an attempt that has died count",
        "runtime/spark/rounds.py",
        "stepped.relay != ran.relay",
        "not stepped",
        CASCADES,
    ),
    Mutant(
        "the numbers of atoms begin again",
        "runtime/spark/driver.py",
        "        atoms = total_of([self._atoms, *(result.atoms for result in results)])\n",
        "        atoms = total_of(result.atoms for result in results)\n",
        CASCADES,
    ),
    Mutant(
        "later records are lost",
        "runtime/spark/later_records.py",
        "        if at_once:\n",
        "        if False:\n",
        CASCADES,
    ),
    Mutant(
        "the rest of a cascade is lost",
        "engine/streams/cascade_runner.py",
        "            self._apply((rest or self._rest(cascade, REQUESTS_CODEC)).rest(queue))\n",
        "            pass\n",
        f"{STREAMS}/test_order.py::test_a_cut_changes_no_result",
    ),
    Mutant(
        "a cascade is cut elsewhere when it runs again",
        "engine/streams/cascade_runner.py",
        "return self.cuts.get(continuation_id(cascade.root), NOT_CUT) if self.cuts else NOT_CUT",
        "return NOT_CUT",
        f"{STREAMS}/test_cascade_queue.py::test_a_log_is_processed_again_with_its_cuts",
    ),
    Mutant(
        "a cascade overtakes the records that wait",
        "runtime/spark/later_records.py",
        "may_go_on and self._is_idle(commit) and not",
        "may_go_on and not",
        "tests/differential/test_later_records.py::test_a_cascade_lets_the_records_go_first_that_wait",
    ),
    Mutant(
        "a short cascade is cut because the machine was busy",
        "engine/streams/cascade_runner.py",
        "bound_s = self._share_s if ran >= self._short else self._share_s * WIDER",
        "bound_s = self._share_s",
        f"{STREAMS}/test_cascade_queue.py::test_a_short_cascade_has_a_wider_bound",
    ),
    Mutant(
        "a cascade goes on behind each epoch",
        "runtime/spark/later_records.py",
        "may_go_on = self._has_continued(commit) or bool(continuing)",
        "may_go_on = self._has_continued(commit) or True",
        "tests/differential/test_later_records.py::test_callers_who_wait_for_each_reply_have_their_time",
    ),
    Mutant(
        "a cascade overtakes another one",
        "runtime/spark/later_records.py",
        "if may_go_on and self._is_idle(commit) and not self._next_goes_on(now_us) and continuing:",
        "if may_go_on and self._is_idle(commit) and continuing:",
        "tests/differential/test_later_records.py::test_no_cascade_overtakes_another",
    ),
    Mutant(
        "an unchanged row of a table is put again",
        "engine/streams/published_rows.py",
        "if former[place : place + 1] != [event]",
        "if former",
        f"{TABLES}::test_rows_of_an_entity_have_places",
    ),
    Mutant(
        "a later record overtakes the changes of a table",
        "engine/streams/cascade_runner.py",
        "self._take_at_once(cascade, Delivery(subscriber, table.name, events))",
        "cascade.push(Delivery(subscriber, table.name, events))",
        "tests/differential/test_published_tables.py",
    ),
    Mutant(
        "an entity that fails takes away the rows of others",
        "engine/streams/cascade_runner.py",
        "if len(changed) == 1:\n            return [self._without_rows(cascade, table, changed[0], outcome)]",
        "if changed:\n            return [self._without_rows(cascade, table, each, outcome) for each in changed]",
        f"{TABLES}::test_a_row_function_fails_alone",
    ),
    Mutant(
        "bytes are not compared after an unclear answer",
        "files/store_answers.py",
        "return bool(present.data == data)",
        "return True",
        SIMULATION,
    ),
    Mutant(
        "a driver is fenced by its own commit",
        "files/store_answers.py",
        "return bool(present.data == data)",
        "return False",
        SIMULATION,
    ),
    Mutant(
        "a name is used again after its commit was merged and removed",
        "journal/head.py",
        "if is_old or not is_ours:",
        "if not is_ours:",
        SIMULATION,
    ),
    Mutant(
        "the lease is believed as a fence",
        "journal/head.py",
        "if is_old or not is_ours:",
        "if is_old:",
        SIMULATION,
    ),
    Mutant(
        "a store that is away counts as a holder that is dead",
        "process/lease.py",
        "        except OSError:\n            watch = _Watch()",
        "        except OSError:\n            pass",
        SIMULATION,
    ),
)
