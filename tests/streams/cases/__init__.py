"""The cases of the programming model that every runtime must pass, in a single application.

A case has its own streams. So a runtime takes all cases together, and each check reads the streams of its case.
"""

from penstock import App

from . import flows, portals
from .case import CASES

__all__ = ["CASES", "app", "flows", "portals"]

_members = [member for case in CASES.values() for member in case.members]
app = App("cases", *dict.fromkeys(_members))
