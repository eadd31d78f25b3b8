"""An application whose handlers can behave in another way in a process that was forked after the import."""

import builtins
import os
import sys
import time
from typing import Any

from penstock import App, entity, key

HOME = os.getpid()
LAST_WORDS = "counted by a companion"


@entity
class Till:
    name: str = key()
    count: int = 0

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count

    def add_as_the_environment_says(self) -> int:
        self.count += int(os.environ.get("TILL_AMOUNT", "1"))
        return self.count

    def end_other_processes(self) -> int:
        if os.getpid() != HOME:
            os._exit(0)
        return self.add(1)

    def wait_in_other_processes(self) -> int:
        if os.getpid() != HOME:
            time.sleep(60)
        return self.add(1)

    def close_files_of_other_processes(self) -> int:
        if os.getpid() != HOME:
            os.closerange(3, 65_536)
        return self.add(1)

    def speak(self) -> int:
        if os.getpid() != HOME:
            sys.stdout.write(f"{LAST_WORDS}\n")
        return self.add(1)

    def replace_pow(self) -> int:
        vars(builtins)["pow"] = _seven
        return self.add(1)

    def raise_to_power(self) -> int:
        return pow(2, 2)

    def fail(self) -> None:
        raise ValueError("as asked")


def _seven(*_: Any) -> int:
    return 7


app = App("till", Till)
