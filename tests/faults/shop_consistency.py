"""The consistency test of the challenge, as a client over HTTP: one hot item, a thousand buyers.

One item with stock 100 and price 1, 1,000 users with credit 1; 1,000 orders of random users, 1,000
`addItem`, 1,000 checkouts over 100 connections. It knows nothing of Penstock but the contract, and
that a request with an idempotency key may be sent again.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.load import Answer, Load, Request

HOST = "127.0.0.1"
STOCK = 100
BUYERS = 1_000
CONNECTIONS = 100
OK, REFUSED = 200, 400


@dataclass(frozen=True)
class Outcome:
    """The answers to the clients, and the stored values afterwards."""

    statuses: Counter[int]
    bought: set[str]  # orders whose checkout was answered with 200
    paid: set[str]  # orders that are paid
    stock: int
    credit: int

    def check(self) -> None:
        """Compare the four numbers, and the answers with the stored values."""
        assert self.statuses == {OK: STOCK, REFUSED: BUYERS - STOCK}
        assert self.stock == 0
        assert self.credit == BUYERS - STOCK
        assert self.bought == self.paid


def consistency(port: int, seed: int) -> Outcome:
    """Run it against a shop."""
    draw = random.Random(seed)
    crowd = Load(HOST, port, CONNECTIONS)

    def send(paths: Iterable[str], verb: str = "POST") -> list[Answer]:
        requests = [
            Request(verb, path, request_id=f"{seed}-{path}-{number}" if verb == "POST" else "")
            for number, path in enumerate(paths)
        ]
        answers = crowd.run(iter(requests))
        assert len(answers) == len(requests)
        return answers

    def made(paths: Iterable[str], name: str) -> list[str]:
        answers = send(paths)
        assert {one.status for one in answers} == {OK}, answers[0]
        return [json.loads(one.body)[name] for one in answers]

    (item,) = made(["/stock/item/create/1"], "item_id")
    send([f"/stock/add/{item}/{STOCK}"])
    users = made(["/payment/create_user"] * BUYERS, "user_id")
    funded = send([f"/payment/add_funds/{user}/1" for user in users])
    orders = made([f"/orders/create/{draw.choice(users)}" for _ in range(BUYERS)], "order_id")
    added = send([f"/orders/addItem/{order}/{item}/1" for order in orders])
    assert {one.status for one in (*funded, *added)} == {OK}
    answers = send([f"/orders/checkout/{order}" for order in orders])

    def stored(paths: Iterable[str]) -> list[dict[str, Any]]:
        found = send(paths, "GET")
        assert {one.status for one in found} == {OK}
        return [json.loads(one.body) for one in found]

    checked = [one.request.path.rpartition("/")[2] for one in answers if one.status == OK]
    return Outcome(
        statuses=Counter(one.status for one in answers),
        bought=set(checked),
        paid={
            one["order_id"]
            for one in stored([f"/orders/find/{id_}" for id_ in orders])
            if one["paid"]
        },
        stock=stored([f"/stock/find/{item}"])[0]["stock"],
        credit=sum(one["credit"] for one in stored([f"/payment/find_user/{id_}" for id_ in users])),
    )
