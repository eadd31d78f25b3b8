"""What somebody reads who runs a command of which this installation has not all that it needs."""

from typing import Final

MISSING: Final = """\
this installation of Penstock has no {module}: it can define, test and call
applications, and not run them. Install the rest: pip install 'penstock[server]'"""
