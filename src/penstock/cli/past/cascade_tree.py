"""The cascade of a traced request, as a tree for the terminal."""

from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import counted
from penstock.cli.value_text import value_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

_DIM: Final = "dim"
_US_PER_S: Final = 1_000_000


def show_cascade(cascade: dict[str, Any], console: "Console") -> None:
    """Print the cascade of a traced request, and then what differs from the journal."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree("caused")
    for sent in cascade["sent"]:
        tree.add(_sent(sent))
    _leave_out(tree, cascade["sent_left_out"], "sent requests")
    branches = {0: tree}
    _add_atoms(tree, cascade["atoms"])
    _leave_out(tree, cascade["atoms_left_out"], "atoms")
    for step in cascade["steps"]:
        branches[step["number"]] = _add_step(branches.get(step["parent"], tree), step)
    _leave_out(tree, cascade["steps_left_out"], "workflow steps")
    _add_later(tree, cascade)
    console.print(tree)
    for difference in cascade["differences"]:
        recorded, replayed = (_side(difference[side]) for side in ("recorded", "replayed"))
        text = f"{difference['place']}, {difference['part']}: recorded {recorded}, in this run {replayed}"
        console.print(Text(text, "bold red"))
    if cascade["differences_left_out"]:
        console.print(f"{cascade['differences_left_out']:,} further differences", style="red")


def _add_step(tree: "Tree", step: dict[str, Any]) -> "Tree":
    from rich.text import Text

    amount = counted(step["count"], step["takes"][:-1], step["takes"])
    label = Text.assemble(
        ("step ", _DIM), (step["step_id"], "bold"), f" {step['consumer']} took {amount}"
    )
    preposition = "for" if step["takes"] != "events" else "of stream"
    label.append(f" {preposition} {step['source']}")
    if step["failure"] is not None:
        failure = step["failure"]
        label.append(f" failed: {failure['kind']}: {failure['message']}", "red")
    if step["held"]:
        label.append(" (held: its workflow is paused)", "yellow")
    branch = tree.add(label)
    _add_atoms(branch, step["atoms"])
    for name, word in (("questions", "asked"), ("answers", "answered")):
        for message in step[name]:
            to = message["to"]
            branch.add(
                Text.assemble(
                    (f"{word} ", _DIM), f"{to}: {message['text']} ", (message["id"], _DIM)
                )
            )
        _leave_out(branch, step[f"{name}_left_out"], name)
    _add_later(branch, step)
    return branch


def _add_atoms(tree: "Tree", atoms: list[dict[str, Any]]) -> None:
    from rich.text import Text

    for atom in atoms:
        number = "?" if atom["atom"] is None else f"{atom['atom']:,}"
        amount = counted(atom["count"], "event", "events")
        label = Text.assemble(
            ("atom ", _DIM), (f"{atom['stream']} {number}", "cyan"), f": {amount}"
        )
        if atom["events"]:
            more = " …" if atom["count"] > len(atom["events"]) else ""
            label.append(f"  {'  '.join(atom['events'])}{more}")
        tree.add(label)


def _add_later(tree: "Tree", part: dict[str, Any]) -> None:
    from rich.text import Text

    for record in part["later"]:
        label = Text.assemble(
            ("later ", _DIM), (record["request_id"], "bold"), f" {record['call']}"
        )
        if record["delay_us"]:
            label.append(f" after {record['delay_us'] / _US_PER_S:g} s")
        if record["epoch"] is None:
            label.append(" (not in the journal)", "yellow")
        else:
            outcome = "took effect" if record["error"] is None else f"undone: {record['error']}"
            style = "green" if record["error"] is None else "red"
            label.append(f" {outcome} in epoch {record['epoch']}", style)
        tree.add(label)
    _leave_out(tree, part["later_left_out"], "later records")


def _leave_out(tree: "Tree", count: int, name: str) -> None:
    from rich.text import Text

    if count:
        tree.add(Text(f"{count:,} further {name}", _DIM))


def _sent(request: dict[str, Any]) -> "Text":
    from rich.text import Text

    reply = request["reply"]
    label = Text.assemble(("sent ", _DIM), (request["request_id"], "bold"), f" {request['call']}")
    if "error" in reply:
        label.append(f" undone: {reply['error']['kind']}: {reply['error']['message']}", "red")
    else:
        label.append(f" → {value_text(reply['value'])}")
    return label


def _side(value: Any) -> str:
    return "nothing" if value is None else value_text(value)
