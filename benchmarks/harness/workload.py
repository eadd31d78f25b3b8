"""The requests of a benchmark, encoded before anything is measured.

Everything follows from the seed, so that two runs append the same requests in the same order. A
workload has the requests that fill the application and those that are measured; `feed` decides when
they are sent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import shop, transfer
from benchmarks.harness.options import Options
from penstock.model.application import App

LOADED_AT_ONCE: Final = 500
_TRANSFERS: Final = 1 << 17
_AMOUNT_MAX: Final = 5
_BASKET_MAX: Final = 3

Encoded = tuple[bytes, bytes]
"""Body and hint of a request."""


@dataclass(frozen=True)
class Workload:
    """The requests of a benchmark.

    Attributes:
        app: The application; `spec` is where any process finds it.
        loading: The requests that create the entities, in order.
        pool: The requests that are measured, each as often as it is drawn.
        draw: Gives the next so many indices into the pool.
    """

    app: App
    spec: str
    loading: list[Encoded]
    pool: list[Encoded]
    draw: Callable[[int], NDArray[np.int64]]


def workload_of(options: Options) -> Workload:
    """Encode a workload; takes about a second for 100,000 orders."""
    return _checkouts(options) if options.kind == "checkout" else _transfers(options)


def application_of(options: Options) -> tuple[App, str]:
    """Return the application of a workload and its spec, which any process can load."""
    module = shop if options.kind == "checkout" else transfer
    return module.app, f"{module.__file__}:app"


def loading_count(options: Options) -> int:
    """Return how many requests create the entities."""
    counts = [options.users]
    if options.kind == "checkout":
        counts += [options.items, options.orders]
    return sum(-(-count // LOADED_AT_ONCE) for count in counts)


class Drawing:
    """Draws numbers below `count`, uniformly or by Zipf: number n with weight 1/(n + 1)^theta."""

    def __init__(self, generator: np.random.Generator, count: int, theta: float) -> None:
        self._generator = generator
        self._count = count
        self._bounds: NDArray[np.float64] | None = None
        if theta > 0:
            weights = np.arange(1, count + 1, dtype=np.float64) ** -theta
            self._bounds = np.cumsum(weights) / weights.sum()

    def __call__(self, size: int) -> NDArray[np.int64]:
        """Return the next `size` numbers."""
        if self._bounds is None:
            return self._generator.integers(0, self._count, size)
        found = np.searchsorted(self._bounds, self._generator.random(size), side="right")
        return np.minimum(found, self._count - 1).astype(np.int64)


def _checkouts(options: Options) -> Workload:
    app, spec = application_of(options)
    generator = np.random.default_rng(options.seed)
    loading = [
        *_batches(app, "load_items", options.items),
        *_batches(app, "load_users", options.users),
    ]
    buyers = Drawing(generator, options.users, options.zipf)(options.orders).tolist()
    sizes = generator.integers(1, _BASKET_MAX + 1, options.orders)
    drawn = Drawing(generator, options.items, options.zipf)(int(sizes.sum()))
    baskets = [part.tolist() for part in np.split(drawn, np.cumsum(sizes)[:-1])]
    orders = list(zip(buyers, baskets, strict=True))
    for first in range(0, options.orders, LOADED_AT_ONCE):
        some = orders[first : first + LOADED_AT_ONCE]
        loading.append(app.request("", None, "load_orders", (first, some)))
    pool = [app.request("Order", str(number), "reorder") for number in range(options.orders)]
    return Workload(app, spec, loading, pool, Drawing(generator, options.orders, options.zipf))


def _transfers(options: Options) -> Workload:
    """Draw transfers beforehand, many enough that each is sent a few times only."""
    app, spec = application_of(options)
    generator = np.random.default_rng(options.seed)
    accounts = Drawing(generator, options.users, options.zipf)
    sources, targets = accounts(_TRANSFERS), accounts(_TRANSFERS)
    targets = np.where(sources == targets, (targets + 1) % options.users, targets)
    amounts = generator.integers(1, _AMOUNT_MAX + 1, _TRANSFERS)
    account = app.entities["Account"].cls
    pool = [
        app.request("Account", str(source), "transfer", (account(str(target)), amount))
        for source, target, amount in zip(
            sources.tolist(), targets.tolist(), amounts.tolist(), strict=True
        )
    ]
    loading = list(_batches(app, "load_accounts", options.users))
    return Workload(app, spec, loading, pool, Drawing(generator, _TRANSFERS, 0.0))


def _batches(app: App, function: str, count: int) -> Iterator[Encoded]:
    for first in range(0, count, LOADED_AT_ONCE):
        size = min(LOADED_AT_ONCE, count - first)
        yield app.request("", None, function, (first, size))
