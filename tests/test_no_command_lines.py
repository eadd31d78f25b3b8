"""No process runs the command line and reads its text: commands are for people and their shells."""

import ast
from collections.abc import Iterator

from tests.checkout import TOP

SOURCE = TOP / "src/penstock"


def commands_in(source: str) -> Iterator[str]:
    """Yield the lists of words that begin with `penstock` or follow `-m penstock`, and the names of modules of `cli`."""
    for node in ast.walk(ast.parse(source)):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
        before = ["-m", *texts]
        if any(pair == ("-m", "penstock") for pair in zip(before, texts, strict=False)):
            yield ast.unparse(node)
        if isinstance(node, ast.Constant) and str(node.value).startswith("penstock.cli."):
            yield ast.unparse(node)


def test_no_module_below_the_command_line_runs_it() -> None:
    """Only `cli` starts commands: its supervisor starts the processes of an application, and reads no answer."""
    found = {
        path.relative_to(SOURCE).as_posix(): list(commands_in(path.read_text()))
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "cli")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_command_is_found() -> None:
    """The search sees the forms in which a process was started, and no others."""
    asked = "words = ['penstock', 'rebalance']\nask_child(words)"
    started = "subprocess.run([sys.executable, '-P', '-m', 'penstock', 'sql'])"
    module = "ask_child('penstock.cli.running.source_check', question, Answer)"
    for source in (asked, started, module):
        assert len(list(commands_in(source))) == 1, source
    assert list(commands_in("ask_child('penstock.orders.partitions', move, Move)")) == []
