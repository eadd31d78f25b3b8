"""Records whose annotations are text, because the module postpones them."""

from __future__ import annotations

from enum import Flag
from typing import Annotated, NotRequired, Required, TypedDict


class Named(TypedDict):
    name: str


class Remark(Named, total=False):
    stars: int
    day: Required[str]


class Note(Remark):
    text: Annotated[str, "what a reader wrote"]
    reply: Annotated[NotRequired[Note], "an answer"]


class Right(Flag):
    """What a person may do."""

    READ = 1
    WRITE = 2
