"""The shop over HTTP, through a gateway with the serial runtime; `test_live_changes` kills processes under such calls."""

from pathlib import Path
from urllib.parse import urlsplit

from tests.checkout import SHOP
from tests.faults.shop_consistency import consistency
from tests.gateway_thread import RunningGateway


def test_hot_item_is_sold_exactly_as_often_as_it_is_there(tmp_path: Path) -> None:
    """A thousand buyers of a hundred pieces: a hundred get one, and every buyer is told."""
    with RunningGateway(SHOP, tmp_path) as gateway:
        port = urlsplit(gateway.url).port
        assert port is not None
        consistency(port, seed=1).check()
