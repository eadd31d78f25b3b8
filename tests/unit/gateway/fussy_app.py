"""An application with arguments whose own code raises."""

import msgspec
import pydantic

from penstock import App, Entity, key


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

    def model(self, it: Model) -> int:
        return it.fussy


app = App("boxes", Box)
