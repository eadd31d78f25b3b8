"""An application with arguments whose own code raises."""

import os
import re
import threading

import msgspec
import pydantic

from penstock import App, Entity, key, readonly, route


class Fussy(msgspec.Struct):
    """A Struct that raises whatever its size says."""

    size: int

    def __post_init__(self) -> None:
        errors = [
            ValueError,
            RuntimeError,
            SystemExit,
            KeyboardInterrupt,
            RecursionError,
            MemoryError,
        ]
        if self.size < len(errors):
            raise errors[self.size]("it does not like the size")


class Endless(msgspec.Struct):
    """A Struct whose check never returns, holds the interpreter's lock, or ends its process."""

    way: str

    def __post_init__(self) -> None:
        if self.way == "wait":
            threading.Event().wait()
        if self.way == "loop in C":
            re.match(r"(a*)*b", "a" * 64)
        if self.way == "exit":
            os._exit(1)


class Model(pydantic.BaseModel):
    fussy: int

    @pydantic.field_validator("fussy")
    @classmethod
    def check(cls, fussy: int) -> int:
        Fussy(fussy)
        return fussy


class Box(Entity):
    name: str = key()

    def put(self, it: Fussy) -> int:
        return it.size

    def wait(self, it: Endless) -> str:
        return it.way

    @route("POST /boxes/{name}/way")
    def way(self, it: Endless) -> str:
        return it.way

    @readonly
    def look(self, it: Endless) -> str:
        return it.way

    def plain(self, size: int) -> int:
        return size

    def model(self, it: Model) -> int:
        return it.fussy


app = App("boxes", Box)
