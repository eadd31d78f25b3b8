"""Work that outlives a version of the application: held steps, cut cascades and waiting handlers after a deployment."""

from penstock import App, Emit, flow, portal, stream
from penstock.engine.limits import Limits
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.pausing_app import FORBIDDEN, numbers, totals

starts = stream("starts", int)
slow_double = portal("slow_double", int, int)


class Doubler:
    """Replies with twice the number."""

    def on_event(self, number: int) -> None:
        """Take no part."""

    @slow_double.reply
    def on_double(self, number: int) -> int:
        return 2 * number


class Asker:
    """Publishes the reply to its question."""

    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await slow_double.ask(number))


doubling = flow("doubling", starts).task(Doubler).sink("none")
asking = flow("asking", starts).task(Asker).sink("doubled")
ONE_STEP = Limits(cascade_steps=1)


def continued(app: App, former: LocalRuntime, limits: Limits | None = None) -> LocalRuntime:
    """Return a runtime of another version of an application, with the state of the former one."""
    runtime = LocalRuntime(app, limits=limits)
    runtime.state.update(former.state)
    runtime._later.extend(former._later)
    return runtime


def events_of(runtime: LocalRuntime, name: str) -> list[int]:
    published = runtime.app.topology.streams[name]
    return [published.events.decode(data) for atom in runtime.streams[name] for data in atom]


def test_held_steps_go_to_their_workflow_in_another_version() -> None:
    """The new version has another consumer before the paused workflow, whose held atoms stay its own."""
    FORBIDDEN.clear()
    FORBIDDEN.add(0)
    before = LocalRuntime(App("pausing", totals))
    for number in (0, 7):
        before.append("numbers", [number])
    FORBIDDEN.clear()
    copied = flow("copy", numbers).sink("copied", int)
    after = continued(App("pausing", copied, totals), before)
    after.resume("total")
    assert events_of(after, "totals") == [0, 7]
    assert events_of(after, "copied") == []


def cut_after_the_first_step() -> LocalRuntime:
    """Return a runtime whose atom has gone through the first workflow only, and waits for the second."""
    first, second = (flow(name, starts).sink(f"{name}-out", int) for name in ("first", "second"))
    runtime = LocalRuntime(App("cut", first, second), limits=ONE_STEP)
    later, runtime._settle = runtime._settle, lambda: True  # type: ignore[method-assign]
    runtime.append("starts", [1])
    runtime._settle = later  # type: ignore[method-assign]
    assert events_of(runtime, "first-out") == [1]
    assert events_of(runtime, "second-out") == []
    return runtime


def test_cut_cascade_goes_on_with_the_same_workflow() -> None:
    """The workflows of the new version are in another order, and there is one more."""
    names = ("second", "third", "first")
    flows = (flow(name, starts).sink(f"{name}-out", int) for name in names)
    after = continued(App("cut", *flows), cut_after_the_first_step(), ONE_STEP)
    while not after.settle():
        pass
    assert [events_of(after, f"{name}-out") for name in names] == [[1], [], []]


def test_cut_cascade_drops_the_steps_of_a_removed_workflow() -> None:
    """The atom of a workflow that is gone reaches no other consumer, and nothing is left of it."""
    first = flow("first", starts).sink("first-out", int)
    after = continued(App("cut", first), cut_after_the_first_step(), ONE_STEP)
    assert after.settle()
    assert events_of(after, "first-out") == []
    assert not [key for key in after.state if key.startswith("$steps")]


def asked_and_cut() -> LocalRuntime:
    """Return a runtime with a handler that waits, and its question, which has not reached its portal yet."""
    runtime = LocalRuntime(App("portals", doubling, asking), limits=Limits(cascade_steps=2))
    later, runtime._settle = runtime._settle, lambda: True  # type: ignore[method-assign]
    runtime.append("starts", [21])
    runtime._settle = later  # type: ignore[method-assign]
    assert [key for key in runtime.state if key.startswith("$wait")]
    return runtime


def test_waiting_handler_goes_on_in_another_version() -> None:
    """The same task continues with the reply of the new version's portal."""
    copied = flow("copy", starts).sink("copied", int)
    after = continued(App("portals", copied, doubling, asking), asked_and_cut())
    assert after.settle()
    assert events_of(after, "doubled") == [42]
    assert not [key for key in after.state if key.startswith("$")]


def test_reply_to_a_removed_task_is_dropped() -> None:
    """The portal still replies, the record does not fail, and the next records are processed."""
    after = continued(App("portals", doubling), asked_and_cut())
    assert after.settle()
    assert after.failures == []
    assert after.append("starts", [1]).error is None


def test_question_to_a_removed_portal_fails() -> None:
    """The step of the handler that asked is set aside, and nothing waits any more."""

    class Silent:
        """Has asked in the former version."""

        def on_event(self, number: int, out: Emit[int]) -> None:
            out(number)

    silent = flow("asking", starts).task(Silent, name="Asker").sink("doubled")
    after = continued(App("portals", silent), asked_and_cut())
    assert after.settle()
    assert len(after.streams["asking-failed"]) == 1
    assert events_of(after, "doubled") == []
    assert not [key for key in after.state if key.startswith("$")]
    after.append("starts", [5])
    assert events_of(after, "doubled") == [5]
