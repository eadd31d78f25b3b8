"""The text of an error keeps its cause, however long the error is."""

from penstock.base.cause import CAUSE_MAX, cause_text

JAVA = "".join(f"\tat org.apache.spark.rdd.RDD.step{n}(RDD.scala:{n})\n" for n in range(100))
STACK = "".join(f'  File "worker.py", line {n}, in step\n' for n in range(100))


def test_the_exception_of_a_worker_is_in_the_text() -> None:
    """It stands between the stack of Python and the stack of Java, far behind the beginning."""
    error = f"Job aborted: task 0 failed 4 times\n{STACK}MemoryError: no memory\n\n{JAVA}\t... 12 more\n"
    text = cause_text(error)
    assert text.startswith("Job aborted: task 0 failed 4 times")
    assert text.endswith("MemoryError: no memory")
    assert len(text) <= CAUSE_MAX


def test_a_short_error_is_whole() -> None:
    """Nothing is left out of it; an exception without text has its name."""
    assert cause_text(ValueError("the\n\tat end")) == "the\n\tat end"
    assert cause_text(MemoryError()) == "MemoryError()"
