"""The result of a deployment, for people."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import DeploymentResult


def show_deployment(answer: "DeploymentResult", console: "Console") -> None:
    """Print the answer for people."""
    for change in answer.changes:
        console.print(change, style="green", highlight=False, markup=False)
    for request in answer.unfit:
        console.print(request, style="yellow", highlight=False, markup=False)
    number = answer.number
    if not answer.changed:
        console.print("This code is deployed already. Nothing has changed.")
    elif number is None:
        console.print(
            f"No driver runs. The deployment is durable at position {answer.position} of the log, "
            "and takes effect when a driver runs.",
            style="yellow",
        )
    else:
        console.print(f"Deployment {number} is in force since epoch {answer.since}.")
        if answer.behind:
            console.print(
                f"Gateways {', '.join(map(str, answer.behind))} still serve the code before; "
                "GET /readyz says why.",
                style="yellow",
            )
