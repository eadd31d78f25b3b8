"""The output of Java: a trace is one line that names a file, and the file has everything."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.spark.java_output import JavaOutput, TraceFolder

FILE = Path("data/run/java.log")
NAMED = f"(all of it is in {FILE})"

IDLE_WORKER = """\
Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 293, in main
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker_util.py", line 255, in get_sock_file_to_executor
    sock_file.close()
BrokenPipeError: [Errno 32] a worker ended
printed by a handler"""

SAID = "PySpark daemon failed to flush the output to the worker process:\n"
FLUSH = """\
Traceback (most recent call last):
  File "site-packages/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
{error}

printed by a handler"""

LISTENER = """\
2026-01-01T00:00:00.000Z error org.apache.spark.Bus: a listener threw an exception
py4j.Py4JException: Error while sending a command.
\tat py4j.CallbackClient.sendCommand(CallbackClient.java:397)
\tat jdk.proxy3/jdk.proxy3.$Proxy41.onQueryProgress(Unknown Source)
\tat org.apache.spark.util.ListenerBus.postToAll$(ListenerBus.scala:102)
Caused by: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.NioSocketImpl.implRead(NioSocketImpl.java:328)
\t... 24 more
printed by a handler"""


def folded(text: str) -> list[str]:
    folder = TraceFolder(FILE)
    return [line for taken in text.splitlines() for line in folder.take(taken)] + folder.flush()


def test_python_trace_is_its_last_error() -> None:
    """A chain of Python exceptions is one line: the last error, and the name of the file."""
    assert folded(IDLE_WORKER) == [
        f"BrokenPipeError: [Errno 32] a worker ended {NAMED}",
        "printed by a handler",
    ]


def test_end_of_an_idle_worker_is_in_the_file_only() -> None:
    """Spark ends idle workers, which is no error; a worker that fails for another reason is shown."""
    broken = FLUSH.format(error="BrokenPipeError: [Errno 32] Broken pipe")
    for text in (broken, SAID + broken):  # PySpark says it before some of them
        assert folded(text) == ["printed by a handler"]
    full = "OSError: [Errno 28] No space left on device"
    assert folded(FLUSH.format(error=full)) == [f"{full} {NAMED}", "printed by a handler"]
    handler = broken.replace(
        "worker\n    outfile.flush()", 'worker\n  File "shop.py", line 2, in sell'
    )
    assert folded(handler) == [
        f"BrokenPipeError: [Errno 32] Broken pipe {NAMED}",
        "printed by a handler",
    ]


def test_traces_of_two_workers_at_the_same_time_are_in_the_file_only() -> None:
    """Each of two workers has written its head, and then each the rest."""
    trace = FLUSH.format(error="BrokenPipeError: [Errno 32] Broken pipe").splitlines()[:-2]
    assert folded("\n".join([trace[0], *trace, *trace[1:]])) == []


def test_a_pause_inside_of_a_trace_shows_nothing() -> None:
    """A busy machine may write the lines of a trace one by one."""
    folder, shown = TraceFolder(FILE), []
    for line in IDLE_WORKER.splitlines()[7:]:
        shown += folder.take(line) + folder.pause()
    assert shown == [f"BrokenPipeError: [Errno 32] a worker ended {NAMED}", "printed by a handler"]


def test_java_trace_is_its_event() -> None:
    """The exception below an event of Java is gone; the line of the event names the file."""
    event = "2026-01-01T00:00:00.000Z error org.apache.spark.Bus: a listener threw an exception"
    assert folded(LISTENER) == [f"{event} {NAMED}", "printed by a handler"]


def test_a_trace_of_python_in_a_message_of_java_is_its_event() -> None:
    """A query that fails tells the trace of its function in the message of Java, twice and without the word `Caused`."""
    event = "2026-01-01T00:00:00.000Z error org.apache.spark.Query: it terminated with error"
    thrown = (
        "org.apache.spark.UserException: [FAILED] Return Message: Traceback (most recent call last):\n"
        '  File "query.py", line 114, in call\n    self._on_batch(batch)\n         ^^^^^^^\n'
        "penstock.errors.JournalUnavailable: the disk is full\n\n SQLSTATE: 39000\n"
        "\tat org.apache.spark.Query.run(Query.scala:1)\n"
    )
    assert folded(f"{event}\n{thrown}{thrown}printed by a handler") == [
        f"{event} {NAMED}",
        "printed by a handler",
    ]
    caused = thrown.replace("org.", "Caused by: org.", 1)
    assert folded(f"{event}\n{thrown}{caused}") == [f"{event} {NAMED}"]


def test_two_traces_are_two_lines() -> None:
    """The end of one trace is not taken for a part of the next trace."""
    trace = "Traceback (most recent call last):\n  File 'a.py', line 1, in f\nValueError: "
    assert folded(f"{trace}1\n{trace}2") == [f"ValueError: 1 {NAMED}", f"ValueError: 2 {NAMED}"]


def test_trace_at_the_end_is_in_the_file_only() -> None:
    """While Java is stopped, traces are no lines; lines of handlers stay."""
    folder = TraceFolder(FILE)
    folder.is_ending = True
    shown = [line for taken in IDLE_WORKER.splitlines() for line in folder.take(taken)]
    assert shown + folder.flush() == ["printed by a handler"]


@pytest.mark.parametrize("text", ["a\n\n  b\nCaused by: a name in a text", "at home\n... 3 more"])
def test_lines_that_only_resemble_a_trace_stay(text: str) -> None:
    """Lines of handlers are unchanged, also empty and indented lines."""
    assert folded(text) == text.splitlines()


@pytest.mark.usefixtures("large_numbers")
def test_output_goes_to_the_stream_and_completely_to_the_file(tmp_path: Path) -> None:
    """The stream gets one line for a trace; the file gets every byte."""
    program = f"import sys; sys.stdout.write({IDLE_WORKER!r})"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    stream = io.StringIO()
    output = JavaOutput(process, tmp_path, stream)
    process.wait()
    output._thread.join()
    assert output.path == tmp_path / "run" / "java.log"
    assert output.path.read_text() == IDLE_WORKER
    first, second = stream.getvalue().splitlines()
    assert first == f"BrokenPipeError: [Errno 32] a worker ended (all of it is in {output.path})"
    assert second == "printed by a handler"


def test_end_of_the_main_thread_is_noted(tmp_path: Path) -> None:
    """Java goes on after it, for ever: who waits for the start must learn of it."""
    program = "print('ready'); print('Exception in thread \"main\" java.io.IOException: full')"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    output = JavaOutput(process, tmp_path, io.StringIO())
    process.wait()
    output.close()
    assert output.failure == "java.io.IOException: full"
