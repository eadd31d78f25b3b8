"""A request to stop arrives whatever the main thread does at that moment."""

import signal

import pytest

from penstock.process.stop import Stop, interruptible


@pytest.mark.timeout(120)
def test_a_signal_may_come_in_the_middle_of_a_wait() -> None:
    """A handler runs in the main thread, which may hold the lock of the event: it must not wait for that."""
    with Stop() as stop:
        with stop.wanted._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
            assert not stop.wanted.is_set()
        assert stop.wanted.wait(60)


@pytest.mark.timeout(120)
def test_the_second_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as the second one also if the first one has told nobody yet."""
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    with Stop(at_once=lambda: ended.append(0)) as stop:
        with stop.wanted._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)
            assert ended == []
            signal.raise_signal(signal.SIGINT)
        assert ended == [0, 130]
        assert stop.wanted.wait(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_removes_what_is_not_complete(number: signal.Signals) -> None:
    """A second signal does not end the removal; afterwards the signals do what they did before."""
    former = signal.signal(number, signal.SIG_DFL)  # `nohup` ignores one of them
    before, removed = signal.getsignal(number), []

    def work() -> None:
        with interruptible():
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(signal.SIGTERM)
                removed.append("file")

    try:
        with pytest.raises(SystemExit) as ended:
            work()
        assert (ended.value.code, removed) == (128 + number, ["file"])
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, former)
