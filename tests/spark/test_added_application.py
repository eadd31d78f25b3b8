"""An application is added while another one runs, and asks its portal: the results are those of one application."""

from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import RequestId
from penstock.deployment.deploy_order import append_deployment, store_code, wait_for_deployment
from penstock.deployment.loading import load_app
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.runtime.spark.runtime import SparkRuntime
from tests.differential.committed import streams_of

pytestmark = [pytest.mark.spark]

DEADLINE_MS = 120_000
STOCKROOM = """
from penstock import App, flow, portal, stream

take = portal("take", str, bool, key=str)


class Inventory:
    amount: int = 0

    def on_event(self, item: str) -> None:
        self.amount += 1

    @take.reply
    def on_take(self, item: str) -> bool:
        if self.amount == 0:
            return False
        self.amount -= 1
        return True


puts = stream("puts", str)
app = App("stockroom", flow("stock", puts).key(str).task(Inventory).sink("stocked", int))
"""
CARTS = """
from penstock import App, Emit, flow, registry, stream

take = registry.portal("/stockroom/portals/take", str, bool)


class Cart:
    items: list[str] = []

    async def on_event(self, wish: list[str], out: Emit[list[str]]) -> None:
        user, item = wish
        if not item:
            out([user, *self.items])
        elif await take.ask(item):
            self.items.append(item)


carts = flow("carts", stream("wishes", list[str])).key(lambda wish: wish[0]).task(Cart)
app = App("carts", take, carts.sink("orders"))
"""
WISHES = [
    [["U1", "i1"], ["U2", "i2"]],
    [["U3", "i1"], ["U4", "i2"]],
    [["U1", ""], ["U2", ""], ["U3", ""], ["U4", ""]],
]


@pytest.mark.turns(
    1,
    *("engine", "runtime", "dataflow", "deployment", "exchange", "model", "native", "state"),
    of="one thread beside Spark",
)
def test_application_added_while_another_runs(tmp_path: Path) -> None:
    """The carts come later, as an application of their own, and sell what the inventory has taken before."""
    stockroom, carts = tmp_path / "apps" / "added_stockroom", tmp_path / "added_carts"
    for folder, source in ((stockroom, STOCKROOM), (carts, CARTS)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source)
    config = Config(data=tmp_path / "data", cores=2, partitions=2)
    runtime = SparkRuntime(str(stockroom.parent), config)
    runtime.start()
    try:
        take(runtime, runtime.app, "puts", [["i1", "i1", "i2"]])
        added = append_deployment(config, store_code(config.data, str(carts)))
        assert added is not None
        wait_for_deployment(config, added, DEADLINE_MS / 1_000)
        whole = load_app(f"{stockroom},{carts}")
        take(runtime, whole, "wishes", WISHES)
        decode = whole.topology.streams["orders"].events.decode
        atoms = streams_of(runtime.journal)["orders"]
    finally:
        runtime.stop()
    orders = sorted(decode(data) for atom in atoms for data in atom)
    assert orders == [["U1", "i1"], ["U2", "i2"], ["U3", "i1"], ["U4"]]


def take(runtime: SparkRuntime, app: Any, name: str, atoms: list[list[Any]]) -> None:
    """Append atoms, and wait until they are processed."""
    runtime.log.append(
        [
            Entry(RequestId(f"{name}-{number}"), app.append(name, atom), b"", number)
            for number, atom in enumerate(atoms)
        ]
    )
    assert runtime.wait_until(runtime.log.end(), DEADLINE_MS)
