"""A deployment from the command line: it is appended to the log, and followed until every process serves it."""

import time
from contextlib import closing
from typing import Any, Final

from rich.console import Console

from penstock.errors import TimedOut
from penstock.journal.tail import JournalTail
from penstock.model.control import DeployedCode
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.live_deployment import append_deployment, wait_for_deployment

_LOOK_S: Final = 0.02


def put_in_force(
    settings: Config, code: DeployedCode, timeout_s: float, replaces: DeployedCode | None = None
) -> dict[str, Any]:
    """Deploy code whose archive is stored, and wait until it is in force.

    Args:
        settings: The settings, which name the data directory.
        code: The code.
        timeout_s: How long to wait for the driver, and then for the gateways.
        replaces: The newest code when this code was made of it; None to replace any code.

    Returns:
        The answer of the command as a JSON object: `number` and `since` are None if no driver runs yet, `changed` is
        False if the code is deployed already, and `behind` has the ids of gateways that still serve older code.

    Raises:
        TimedOut: No driver has executed the record in time; it stays in the log.
        PenstockError: The code or its classes do not fit; nothing has changed.
    """
    answer: dict[str, Any] = {
        "changed": False,
        "number": None,
        "since": None,
        "archive": code.archive,
        "position": None,
        "changes": [],
        "behind": [],
    }
    appended = append_deployment(settings, code, replaces=replaces)
    if appended is None:
        return answer
    answer |= {"changed": True, "position": appended.lsn, "changes": appended.changes}
    if not any(presence.find(settings.data, role) for role in presence.SINGLE):
        return answer
    directory = DataDirectory(settings.data)
    with (
        closing(directory.open_journal_of(directory.app_name or "")) as journal,
        closing(JournalTail(journal)) as tail,
    ):
        try:
            deployment = wait_for_deployment(settings.data, tail, appended, int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"the driver has not executed the deployment within {timeout_s:g} s; it is durable at "
                f"position {appended.lsn} of the log, and penstock apps shows when it is in force"
            ) from None
    behind = _gateways_behind(settings, deployment.number, timeout_s)
    return answer | {"number": deployment.number, "since": deployment.since, "behind": behind}


def show_deployment(answer: dict[str, Any], console: Console) -> None:
    """Print the answer for people."""
    for change in answer["changes"]:
        console.print(change, style="green", highlight=False, markup=False)
    number = answer["number"]
    if not answer["changed"]:
        console.print("This code is deployed already. Nothing has changed.")
    elif number is None:
        console.print(
            f"No driver runs. The deployment is durable at position {answer['position']} of the log, "
            "and takes effect when a driver runs.",
            style="yellow",
        )
    else:
        console.print(f"Deployment {number} is in force since epoch {answer['since']}.")
        if answer["behind"]:
            console.print(
                f"Gateways {', '.join(map(str, answer['behind']))} still serve the code before; "
                "GET /readyz says why.",
                style="yellow",
            )


def _gateways_behind(settings: Config, number: int, timeout_s: float) -> list[int]:
    """Wait until all gateways serve a deployment; return the ids of those that do not in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        behind = [
            process.pid
            for process in presence.find(settings.data, "gateway")
            if int(process.details.get("deployment", number)) < number
        ]
        if not behind or time.monotonic() > deadline:
            return behind
        time.sleep(_LOOK_S)
