"""The dataflow graph as the browser lays it out: where boxes, lines and labels are."""

import itertools
import json
import random
from typing import Any, Final

import pytest

from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_json
from penstock.deployment.loading import load_app
from tests.browser.page import Page
from tests.browser.running import RunningConsole

CLASSES: Final = 30
ALONE: Final = 6
WIDTH_MAX: Final = 1_132
"""A picture of this width does not scroll in a window of 1280 pixels: 963 pixels, where letters have 0.85 of their size."""
HALF_ROW: Final = 13.0
NEAR: Final = 1.5
"""Pixels; a line ends at the border of a box, whose width is rounded."""

MEASURE = """(() => {
  const graph = new module.Graph(given.plan);
  graph.update(new Map(given.rates), new Map(given.streams ?? []));
  graph.element.classList.add("large");
  document.body.append(graph.element);
  const svg = graph.element.querySelector(".graph-scroll svg");
  const box = (one) => {
    const matrix = svg.getScreenCTM().inverse().multiply(one.getScreenCTM());
    const { x, y, width, height } = one.getBBox();
    const at = new DOMPoint(x, y).matrixTransform(matrix);
    return [at.x, at.y, at.x + width, at.y + height];
  };
  const all = (selector) => [...svg.querySelectorAll(selector)];
  const ends = (path) => {
    const [from, to] = [0, path.getTotalLength()].map((at) => path.getPointAtLength(at));
    return [[from.x, from.y], [to.x, to.y]];
  };
  const { x, y, width, height } = svg.viewBox.baseVal;
  const found = {
    view: [x, y, x + width, y + height],
    nodes: Object.fromEntries(
      all("[data-node]").map((one) => [one.dataset.node, box(one.querySelector(".box"))])),
    rows: Object.fromEntries(
      all("[data-method]").map((one) => [one.dataset.method, box(one.querySelector(".method"))])),
    texts: all("[data-node]").map((one) => [
      one.dataset.node, [...one.querySelectorAll("text")].filter((text) => text.textContent).map(box)]),
    labels: all(".flow-rate").filter((one) => one.textContent).map((one) => [one.textContent, box(one)]),
    lines: all("[data-edge]").map((one) => [one.dataset.edge, ends(one.querySelector(".course"))]),
    courses: all("[data-edge]").map((one) => [one.dataset.edge, box(one.querySelector(".course"))]),
    drawn: all("[data-edge]:not(.quiet)").map((one) => one.dataset.edge),
    table: [...graph.element.querySelectorAll("tbody tr")].map((row) =>
      [...row.children].map((cell) => cell.textContent)),
  };
  graph.element.remove();
  return found;
})()
"""

Box = tuple[float, float, float, float]


def generated() -> dict[str, Any]:
    """Return the plan of a large application with circles of calls and classes without calls."""
    chance = random.Random(11)
    names = [f"Class{number:02}" for number in range(CLASSES)]
    operators = [
        {
            "name": name,
            "key": {"name": "name", "type": "str"},
            "attributes": [],
            "methods": [
                {"name": f"method_{number}", "parameters": [], "returns": "int"}
                for number in range(chance.randint(1, 6))
            ],
        }
        for name in names
    ]
    joined = CLASSES - ALONE
    calls = [(at, min(joined - 1, at + chance.randint(1, 7))) for at in range(joined) for _ in "ab"]
    circles = [(20, 3), (12, 11), (5, 5)]
    edges = []
    for number, (source, target) in enumerate([*calls, *circles]):
        action = ("call", "call", "create", "read")[number % 4] if source != target else "call"
        member = {"call": "method_0", "create": "create", "read": "count"}[action]
        edges.append(
            {
                "source": {"operator": names[source], "member": "method_0"},
                "target": {"operator": names[target], "member": member},
                "action": action,
                "origin": "reference",
                "dynamic": False,
                "looped": False,
                "conditional": False,
                "where": {"file": "shop.py", "line": number},
            }
        )
    return {
        "app": "large",
        "operators": operators,
        "stream_operators": [],
        "views": [],
        "applications": [],
        "edges": edges,
        "cycles": [],
    }


def plan_of(name: str) -> dict[str, Any]:
    if name in MADE:
        return MADE[name]()
    plan: dict[str, Any] = json.loads(plan_json(analyze_app(load_app(name))))
    return plan


def rates_of(plan: dict[str, Any]) -> list[tuple[str, float]]:
    """Return a rate for each call that a running application can report."""
    rates: dict[str, float] = {}
    for edge in plan["edges"]:
        if edge["action"] in ("call", "create"):
            ends = (edge["source"], edge["target"])
            texts = [
                end["operator"]
                if end["operator"] == end["member"]
                else f"{end['operator']}.{end['member']}"
                for end in ends
            ]
            rates[">".join(texts)] = 1_234.0
    for operator in plan["operators"]:
        name = operator["name"]
        methods = operator["methods"] if operator["key"] else []
        rates |= {f">{name}.{method['name']}": 9_876.0 for method in methods}
        rates[f">{name}.create" if operator["key"] else f">{name}"] = 0.25
    return list(rates.items())


def stream_rates_of(plan: dict[str, Any]) -> list[tuple[str, float]]:
    """Return a rate for each stream."""
    operators = plan["stream_operators"]
    paths = [one["path"] for one in operators if one["kind"] == "stream"]
    paths += [member["name"] for one in operators for member in one["members"]]
    return [(path, 456.0) for path in paths if path.startswith("streams/")]


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inside(one: Box, other: Box) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]


def apart() -> dict[str, Any]:
    """Return the plan of an application whose classes do not know each other."""
    plan = generated()
    return {**plan, "operators": plan["operators"][:3], "edges": []}


MADE = {"generated": generated, "apart": apart}
APPS = [
    "examples.boxoffice",
    "examples.shop",
    "examples.bank",
    "examples.talk.annotated",
    "examples.newsroom",
    "examples.cart",
    "examples.bank.audit:audited",
    "tests.golden.depot",
    "tests.views.persons_app",
    "examples/market/stock,examples/market/payment,examples/market/orders",
    "generated",
    "apart",
]


@pytest.mark.parametrize("name", APPS)
def test_boxes_and_labels_keep_apart(ask: Any, name: str) -> None:
    """No box or label covers another one, the picture holds all boxes and lines, and a window shows its whole width."""
    plan = plan_of(name)
    given = {"plan": plan, "rates": rates_of(plan), "streams": stream_rates_of(plan)}
    seen = ask("graph.js", MEASURE, given)
    paths = [one["path"] for one in plan["stream_operators"] + plan["views"]]
    assert set(seen["nodes"]) == {*paths, *(one["name"] for one in plan["operators"])}
    boxes = [*seen["nodes"].items(), *map(tuple, seen["labels"])]
    assert [
        (one, other)
        for (one, first), (other, second) in itertools.combinations(boxes, 2)
        if overlap(first, second)
    ] == []
    drawn = [*boxes, *map(tuple, seen["courses"])]
    assert [one for one, box in drawn if not inside(box, seen["view"])] == []
    for node, texts in seen["texts"]:
        assert all(inside(text, seen["nodes"][node]) for text in texts), node
    assert len(seen["labels"]) >= len(plan["operators"])
    assert name == "generated" or seen["view"][2] - seen["view"][0] <= WIDTH_MAX


@pytest.mark.parametrize("name", APPS)
def test_lines_end_at_the_row_of_their_method(ask: Any, name: str) -> None:
    """Each line begins and ends at a border of a box, at the middle of the row that it means."""
    plan = plan_of(name)
    seen = ask("graph.js", MEASURE, {"plan": plan, "rates": rates_of(plan)})
    for line, ends in seen["lines"]:
        for member, (x, y) in zip(line.split(">"), ends, strict=True):
            if not member:
                continue  # the log
            left, top, right, bottom = seen["nodes"][member.split(".")[0]]
            assert min(abs(x - left), abs(x - right)) <= NEAR, (line, member)
            if member in seen["rows"]:
                _, above, _, below = seen["rows"][member]
                assert abs(y - (above + below) / 2) < HALF_ROW, (line, member)
            else:
                rows = [box for row, box in seen["rows"].items() if row.startswith(f"{member}.")]
                assert top <= y <= min([bottom, *(box[1] for box in rows)]), (line, member)
    assert len(seen["lines"]) > 0


def test_classes_without_calls_stand_in_rows_below(ask: Any) -> None:
    """A class that no other class uses is in a row below the others, next to its neighbours."""
    seen = ask("graph.js", MEASURE, {"plan": generated(), "rates": []})
    alone = [f"Class{number:02}" for number in range(CLASSES - ALONE, CLASSES)]
    deepest = max(box[3] for name, box in seen["nodes"].items() if name not in alone)
    tops = [seen["nodes"][name][1] for name in alone]
    assert min(tops) > deepest
    assert tops == sorted(tops)
    assert len(set(tops)) < ALONE
    assert {f">{name}" for name in alone} <= set(seen["drawn"])


def test_table_says_what_the_lines_say(ask: Any) -> None:
    """The table has a row for each line, with the verb that the line's pattern stands for."""
    plan = plan_of("examples.boxoffice")
    seen = ask("graph.js", MEASURE, {"plan": plan, "rates": [["Show.buy>Customer.pay", 3.0]]})
    assert ["Show.buy", "calls", "Customer.pay", "3/s"] in seen["table"]
    assert ["a request", "calls", "Show", "0/s"] in seen["table"]
    assert {row[1] for row in seen["table"]} >= {"calls", "creates", "reads"}
    assert {row[0] + ">" + row[2] for row in seen["table"]} >= {
        line for line in seen["drawn"] if not line.startswith(">")
    }


def test_graph_fits_its_frame_and_has_an_actual_size(page: Page, shop: RunningConsole) -> None:
    """At 360 pixels the whole graph is seen; in its actual size the frame scrolls, and never the page."""
    metrics = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def sizes() -> tuple[bool, float, int]:
        scrolls, scale, over = page.browser.execute_script(
            "const frame = document.querySelector('.graph-scroll');"
            "const svg = frame.querySelector('svg');"
            "return [frame.scrollWidth > frame.clientWidth, svg.getScreenCTM().a,"
            " document.documentElement.scrollWidth - document.documentElement.clientWidth]"
        )
        return scrolls, scale, over

    try:
        page.open("/overview")
        page.one('[data-node="Order"]')
        assert (sizes()[0], sizes()[2]) == (False, 0)
        page.press("Actual size")
        assert sizes() == (True, 1, 0)
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_lines_of_the_focused_class_stand_out(page: Page, shop: RunningConsole) -> None:
    """The keyboard reaches each box; the lines of the box with the focus are marked."""
    page.open("/overview")
    page.one('[data-node="Order"]')
    page.browser.execute_script("document.querySelector('[aria-label=\"Browse Order\"]').focus()")
    marked = {one.get_attribute("data-edge") for one in page.all(".pointed .link.near")}
    assert "Order.checkout>Item.subtract" in marked
    assert all("Order" in str(line) for line in marked)
    page.browser.execute_script("document.activeElement.blur()")
    assert page.all(".pointed") == []
