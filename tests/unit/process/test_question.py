"""Questions to a child process, from the side of the child."""

import os
import subprocess
import sys

import msgspec

CHILD = """
import msgspec
from penstock.process.question import answer_question

class Question(msgspec.Struct):
    number: int

answer_question(Question, lambda question, _: question.number)
"""


def test_child_is_silent_if_the_process_that_has_asked_has_ended() -> None:
    """An interrupted command leaves no traceback of its child behind."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=msgspec.msgpack.encode({"number": 3}),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
