"""Which epoch SQL answers of: the view's process is asked, because it alone knows."""

from pathlib import Path
from typing import Final

import httpx

from penstock.base.ids import Epoch
from penstock.process import presence

_TIMEOUT_S: Final = 2.0


def view_epoch(data: Path) -> Epoch | None:
    """Return the epoch that SQL answers of; None where no view runs, or it does not answer."""
    for one in presence.find(data, "view"):
        # Without a TLS context, which would cost more than all else, and which a socket ignores.
        transport = httpx.HTTPTransport(
            verify=False, trust_env=False, uds=str(one.details["socket"])
        )
        with httpx.Client(transport=transport, trust_env=False, timeout=_TIMEOUT_S) as client:
            try:
                return Epoch(int(client.get("http://view/status").json()["epoch"]))
            except (httpx.HTTPError, ValueError, KeyError):
                return None
    return None
