"""`penstock trace`: the calls of one request, and its effect on entities."""

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.options import AppOptions, JsonOption, PresentCodeOption, RequestIdArgument
from penstock.cli.output import counted, folding_table, folding_tree, print_result, utc_text
from penstock.cli.remote import RemoteOptions
from penstock.cli.value_text import (
    SIDES,
    Row,
    deviation_text,
    difference_rows,
    differences_of,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

HELP: Final = """Show one request: its calls, the entities that it read and changed, its reply.

The application records nothing for this: the request is run again in this process, over the state
before it and with the code of its epoch (see penstock apps). Nothing is written. Connections, processes and files that a handler asks for are refused
and reported. The outcome is compared with the journal.

The command shows the request's place in the order, the tree of calls with the time that each took in
this run, every entity before and after, the changes that a savepoint or an abort has undone, and the
request that changed each entity next. Below the calls, a second tree shows the cascade of the request: the
requests that it sent, the atoms that it published, each workflow step, and the later records that it
appends to the log. The id of a sent request or of a workflow step shows the cascade that it belongs to.

\b
Examples:
  penstock trace checkout-17 examples/shop
  penstock trace checkout-17 examples/shop --data DIR --json
  penstock trace checkout-17 --url http://127.0.0.1:8000
  penstock trace web~checkout-17 examples/shop

\b
The last request was sent with the API key `web`; SQL shows ids in the same form.
"""

_UNITS: Final = ((1_000_000, "s"), (1_000, "ms"))


def command(
    request_id: RequestIdArgument,
    options: AppOptions,
    remote: RemoteOptions,
    present_code: PresentCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a request again and show its calls and changes; see `HELP`."""
    if remote.url is None:
        plain = _trace_here(request_id, options, present_only=present_code)
    else:
        with remote.client() as client:
            plain = client.trace(request_id)
    print_result(plain, lambda console: _show(plain, console), as_json=as_json)


def _trace_here(request_id: str, options: AppOptions, *, present_only: bool) -> dict[str, Any]:
    application, settings = options.load()
    from penstock.history.code_versions import CodeVersions
    from penstock.history.reader import HistoryReader
    from penstock.history.trace import document_json, trace

    with (
        HistoryReader(settings.data, application, "trace") as past,
        CodeVersions(past, application, settings.app, present_only=present_only) as versions,
        redirect_stdout(sys.stderr),  # the output of handlers is not part of the answer
    ):
        named = past.complete(request_id)
        return document_json(trace(past, versions, named, settings.limits))


def show_outside_calls(calls: list[dict[str, str]], console: "Console") -> None:
    """Print the requests whose calls to the outside were refused."""
    for call in calls:
        where = f" ({call['where']})" if call["where"] else ""
        console.print(
            f"request {call['request_id']}: the handler {call['what']}{where}; commands that look "
            "back refuse this, because it makes the request non-deterministic",
            style="bold red",
        )


def _show(trace_: dict[str, Any], console: "Console") -> None:
    from rich.text import Text

    console.print(Text.assemble((trace_["request_id"], "bold"), f"  {trace_['call']}"))
    console.print(
        f"epoch {trace_['epoch']}, request {trace_['position'] + 1:,} of "
        f"{trace_['requests_in_epoch']:,} in it, position {trace_['lsn']:,} of the log"
    )
    appended = utc_text(trace_["appended_us"], exact=True)
    committed = utc_text(trace_["committed_us"], exact=True)
    console.print(f"appended {appended}, committed {committed}")
    console.print(_rounds(trace_))
    _show_reply(trace_["reply"], console)
    show_outside_calls(trace_["outside"], console)
    if not trace_["as_recorded"]:
        why = (
            ", since calls to the outside were refused."
            if trace_["outside"]
            else ": the code has changed or is not deterministic. penstock replay finds the cause."
        )
        console.print(f"The outcome differs from the recorded one{why}", style="bold red")
    if trace_["taken_as_recorded"]:
        console.print(
            "It was not run again: it had exceeded a limit, is a control record, or concerns an erased person.",
            style="yellow",
        )
    if trace_["root"] is not None:
        console.print(folding_tree(_tree(trace_["root"])))
    if trace_["cascade"] is not None:
        show_cascade(trace_["cascade"], console)
    if trace_["entities"]:
        console.print(_entities(trace_["entities"]))
    for entity in trace_["entities"]:
        if deviation := deviation_text(entity["deviations"]):
            console.print(Text(f"{entity['entity']}/{entity['key']}: {deviation}"), style="red")


def _rounds(trace_: dict[str, Any]) -> str:
    if trace_["rounds"] is None:
        return "the number of rounds of its epoch is not known any more"
    rounds = counted(trace_["rounds"], "round", "rounds")
    tasks = counted(trace_["tasks"], "task", "tasks")
    reran = counted(trace_["reran"], "transaction", "transactions")
    return f"its epoch took {rounds} of {tasks}; {reran} ran more than once"


def _show_reply(reply: dict[str, Any], console: "Console") -> None:
    if "value" in reply:
        console.print(f"reply: {value_text(reply['value'])}", style="green")
        return
    error = reply["error"]
    text = f"undone: {error['kind']}: {error['message']} ({error['code']})"
    console.print(text, style="red")


def _duration(microseconds: float) -> str:
    for size, unit in _UNITS:
        if microseconds >= size:
            return f"{microseconds / size:.1f} {unit}"
    return f"{microseconds:.0f} µs"


def _tree(call: dict[str, Any]) -> "Tree":
    from rich.tree import Tree

    tree = Tree(_label(call))
    tree.children += [_tree(inner) for inner in call["calls"]]
    return tree


def _label(call: dict[str, Any]) -> "Text":
    from rich.text import Text

    label = Text.assemble(call["call"], " ", (_duration(call["took_us"]), "dim"))
    if call["error"] is not None:
        label.append(f" raised {call['error']}", "red")
    elif call["value"] not in (None, "None"):
        label.append(f" → {call['value']}")
    if call["undone"]:
        label.append(" (undone)", "yellow")
    if call["where"]:
        label.append(f" {call['where']}", "dim")
    return label


def _entities(entities: list[dict[str, Any]]) -> "Table":
    table = folding_table("entity", "", *SIDES, "changed next by")
    for entity in entities:
        name = f"{entity['entity']}/{entity['key']}"
        access = "written" if entity["written"] else "undone" if entity["undone"] else "read"
        for number, row in enumerate(_element_rows(entity)):
            first = number == 0
            head = (name, access) if first else ("", "")
            table.add_row(*head, *row, _next(entity["next"]) if first else "")
    return table


def _element_rows(entity: dict[str, Any]) -> list[Row]:
    """Return the elements that differ; all attributes if the entity was created or deleted."""
    if entity["before"] is None and entity["after"] is None:
        return [("(does not exist)", "", "")]
    return difference_rows(differences_of(entity)) or [("", "", "")]


def _next(request: dict[str, Any] | None) -> str:
    if request is None:
        return ""
    if request["request_id"] is None:
        return f"epoch {request['epoch']}"
    return f"{request['request_id']} (epoch {request['epoch']}): {request['call']}"


if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

_DIM: Final = "dim"
_US_PER_S: Final = 1_000_000


def show_cascade(cascade: dict[str, Any], console: "Console") -> None:
    """Print the cascade of a traced request, and then the differences from the journal."""
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
    console.print(folding_tree(tree))
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
