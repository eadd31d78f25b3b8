"""A question to a child process, and the child's side of it: structs over standard input and output.

The parent writes one encoded struct to the child's standard input and reads one from its standard
output. The text that an application prints goes to standard error, so that it cannot damage the
answer.
"""

import os
import sys
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

Q = TypeVar("Q")


def encode_question(question: msgspec.Struct) -> bytes:
    """Return the bytes for the child's standard input; a `Config` may be part of the question."""
    return msgspec.msgpack.encode(question, enc_hook=str)


def receive_question(question_type: type[Q]) -> tuple[Q, BinaryIO]:
    """Return the question on standard input, and the file for the answer.

    From here on, standard output is standard error, for Python code and for libraries in C.
    """
    answer_file = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    data = sys.stdin.buffer.read()
    return msgspec.msgpack.decode(data, type=question_type, dec_hook=_path_of), answer_file


def _path_of(field_type: type, text: object) -> object:
    assert field_type is Path, f"{field_type} has no text"
    return Path(str(text))
