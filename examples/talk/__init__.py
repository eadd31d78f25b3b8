"""The program of the talk *Dataflow Engines for Scalable Cloud Applications*, in two styles.

`annotated` declares attributes as a dataclass does; `initialised` is the talk's own way, with
`__init__` and `__key__`, but for the import line. Both are the same application: the same requests
give the same replies and the same state.
"""

from .annotated import app

__all__ = ["app"]
