"""The garbage of a process that serves requests: collections do not visit the objects that stay.

A process has tens of thousands of objects when it begins to serve: modules, classes, and the application. Requests that
wait for their epoch look like objects that stay, too. So collections with Python's own settings visit all of these again and
again: they took a third of a gateway's time.
"""

import gc
from typing import Final

OBJECTS: Final = 50_000
"""New objects between two collections; requests leave few cycles."""


def keep_present_objects() -> None:
    """Collect garbage now; later collections visit only objects that are made from now on.

    Call it again when present objects have become garbage: nothing else collects them if they are in cycles.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)
