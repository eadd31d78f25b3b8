"""API keys, and the way from headers to a principal."""

import hashlib
import json
import logging
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm

from penstock import App, entity, key
from penstock.errors import (
    ConfigError,
    Corrupt,
    OperationalError,
    PenstockError,
    Unauthenticated,
)
from penstock.files.layout import KEYS
from penstock.gateway.auth.authentication import CREDENTIAL_BYTES_MAX, Authenticator, credential_of
from penstock.gateway.auth.keys import PREFIX, ApiKey, KeyRing, KeyStore, decode_keys, encode_keys
from penstock.gateway.auth.principal import ANONYMOUS, Principal, Scope
from penstock.process.config import Config, GatewayConfig
from tests import forked
from tests.waiting import wait_for

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NOTICED_S = 60.0
ADD = Scope("call:Item.add")
Headers = list[tuple[bytes, bytes]]


@entity
class Item:
    item_id: str = key()
    stock: int = 0

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock


APP = App("authentication", Item)


def bearer(secret: str) -> Headers:
    return [(b"host", b"127.0.0.1:8000"), (b"authorization", b"Bearer " + secret.encode())]


def authenticator(data: Path, **settings: object) -> Authenticator:
    return Authenticator.of(Config(data, gateway=GatewayConfig(**settings)), APP)  # type: ignore[arg-type]


def new_key(data: Path, name: str = "web", expires: datetime | None = None) -> str:
    return KeyStore(data).add(name, [ADD], expires, NOW)[1]


def lets_in(door: Authenticator, headers: Headers) -> bool:
    try:
        door.identify(headers)
    except PenstockError:
        return False
    return True


def test_key_identifies_its_principal(tmp_path: Path) -> None:
    """A key stands for its name and exactly its scopes, in either header."""
    secret = new_key(tmp_path)
    door = authenticator(tmp_path)
    principal = Principal("web", frozenset({ADD}), "web")
    assert door.identify(bearer(secret)) == principal
    assert door.identify([(b"x-api-key", secret.encode())]) == principal
    assert door.identify([(b"authorization", b"bEARER " + secret.encode())]) == principal


def test_file_holds_no_secret(tmp_path: Path) -> None:
    """The stored hash verifies a key and is not a key itself; only its owner can read the file."""
    secret = new_key(tmp_path)
    text = (tmp_path / KEYS).read_text()
    assert secret not in text
    unguessable = secret.removeprefix(PREFIX).partition("_")[2]
    assert unguessable[:8] not in text
    assert stat.S_IMODE((tmp_path / KEYS).stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["keys.json"]


@given(st.data())
def test_changed_key_is_refused(data: st.DataObject) -> None:
    """No key with a flipped bit, a lost end or an appendix opens anything."""
    secret = "psk_00c0ffee_" + "Zm9vYmFy" * 5
    (made,) = decode_keys(encode_keys((_key_of(secret),)))
    ring = KeyRing([made])
    presented = bytearray(secret.encode())
    assert ring.principal(bytes(presented), NOW.timestamp()).name == "web"
    change = data.draw(st.sampled_from(["flip", "cut", "extend"]))
    if change == "flip":
        bit = data.draw(st.integers(0, len(presented) * 8 - 1))
        presented[bit // 8] ^= 1 << bit % 8
    elif change == "cut":
        del presented[data.draw(st.integers(0, len(presented) - 1)) :]
    else:
        presented += data.draw(st.binary(min_size=1, max_size=8))
    with pytest.raises(Unauthenticated):
        ring.principal(bytes(presented), NOW.timestamp())


def test_expired_key_is_refused(tmp_path: Path) -> None:
    """A key works until the moment it expires, and no longer."""
    secret = new_key(tmp_path, expires=NOW + timedelta(days=1)).encode()
    ring = KeyRing(KeyStore(tmp_path).read())
    end_s = (NOW + timedelta(days=1)).timestamp()
    assert ring.principal(secret, end_s - 0.001).name == "web"
    with pytest.raises(Unauthenticated, match="web has expired"):
        ring.principal(secret, end_s)


def test_names_and_ids_are_unambiguous(tmp_path: Path) -> None:
    """A name is taken once, and never looks like an id; either of them revokes."""
    store = KeyStore(tmp_path)
    first, _ = store.add("a", [ADD], None, NOW)
    for name in ("a", "", "0123abcd", "a b", "é", "-a", "x" * 65):
        with pytest.raises(ConfigError):
            store.add(name, [ADD], None, NOW)
    second, _ = store.add("b", [ADD], None, NOW)
    assert store.revoke(first.id).name == "a"
    with pytest.raises(ConfigError, match="no key is named 'a'; the keys are: b"):
        store.revoke("a")
    assert store.revoke("b") == second
    assert store.read() == ()


def test_running_gateway_notices_keys_and_revocations(tmp_path: Path) -> None:
    """Without a restart a new key opens, a revoked one does not, and the last one closes."""
    first = new_key(tmp_path, "first")
    door = authenticator(tmp_path)
    second = new_key(tmp_path, "second")
    wait_for(lambda: lets_in(door, bearer(second)), "admission", NOTICED_S)
    KeyStore(tmp_path).revoke("first")
    wait_for(lambda: not lets_in(door, bearer(first)), "a refusal", NOTICED_S)
    KeyStore(tmp_path).revoke("second")
    wait_for(lambda: not lets_in(door, bearer(second)), "a refusal", NOTICED_S)
    assert not lets_in(door, [])


def test_first_key_ends_anonymity_for_good(tmp_path: Path) -> None:
    """After keys were made, anonymous callers stay refused, also if the file vanishes."""
    door = authenticator(tmp_path)
    assert door.identify([]) == ANONYMOUS
    secret = new_key(tmp_path)
    wait_for(lambda: not lets_in(door, []), "a refusal", NOTICED_S)
    (tmp_path / KEYS).unlink()
    wait_for(lambda: not lets_in(door, bearer(secret)), "a refusal", NOTICED_S)
    with pytest.raises(Unauthenticated, match="send a key or a token"):
        door.identify([])


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"\xff", b'{"checksum":"","keys":[]}'])
def test_damaged_file_lets_nobody_in(tmp_path: Path, damage: bytes) -> None:
    """Damage is an error, at the start and while running; it never means that there are no keys."""
    secret = new_key(tmp_path)
    door = authenticator(tmp_path)
    path = tmp_path / KEYS
    whole = path.read_bytes()
    path.write_bytes(damage)
    with pytest.raises(Corrupt):
        authenticator(tmp_path)
    with pytest.raises(Corrupt):
        new_key(tmp_path, "another")
    wait_for(lambda: not lets_in(door, bearer(secret)), "a refusal", NOTICED_S)
    with pytest.raises(Corrupt):
        door.identify([])
    path.write_bytes(whole)
    wait_for(lambda: lets_in(door, bearer(secret)), "admission", NOTICED_S)


@given(st.data())
def test_flipped_bit_in_the_file_grants_nothing_new(data: st.DataObject) -> None:
    """A file with one flipped bit is refused, or gives exactly the same keys as before."""
    keys = (_key_of("psk_00c0ffee_secret"),)
    stored = bytearray(encode_keys(keys))
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    with suppress(Corrupt):
        assert decode_keys(bytes(stored)) == keys  # the bit turned one white space into another


_WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import Scope

folder, writer = Path(sys.argv[1]), sys.argv[2]
store, scopes = KeyStore(folder), [Scope("call:Item.add")]
(folder / f"{writer}.begins").touch()
while len([*folder.glob("*.begins")]) < 2:
    pass
for number in range(10):
    store.add(f"{writer}-{number}", scopes, None, datetime(2026, 5, 1, tzinfo=UTC))
"""


def test_two_writers_lose_no_key(tmp_path: Path) -> None:
    """Keys that several processes make at once are all there afterwards."""
    with ThreadPoolExecutor(2) as threads:
        for done in threads.map(lambda writer: forked.run(_WRITER, tmp_path, writer), range(2)):
            assert done.returncode == 0, done.stderr
    names = {one.name for one in KeyStore(tmp_path).read()}
    assert names == {f"{writer}-{n}" for writer in range(2) for n in range(10)}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Basic dTpw")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer a b")],
        [(b"authorization", b"Bearer a\r\nX-Admin: 1")],
        [(b"authorization", b"Bearer \xff\x00")],
        [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer a")],
        [(b"authorization", b"Bearer a"), (b"x-api-key", b"a")],
        [(b"x-api-key", b"a"), (b"x-api-key", b"b")],
        [(b"x-api-key", b"a" * (CREDENTIAL_BYTES_MAX + 1))],
    ],
)
def test_headers_without_one_credential_are_refused(headers: Headers) -> None:
    """There is exactly one credential, of a form that credentials have, and no guessing."""
    with pytest.raises(Unauthenticated):
        credential_of(headers)


@given(st.binary(max_size=200))
def test_no_bytes_but_a_key_open_the_door(presented: bytes) -> None:
    """For any credentials the answer is a refusal that repeats no word of them."""
    ring = KeyRing([_key_of("psk_00c0ffee_secret")])
    with pytest.raises(Unauthenticated) as refused:
        ring.principal(presented, NOW.timestamp())
    assert str(refused.value) == "the API key is not valid; it may have been revoked"


def test_refusals_and_logs_hold_no_credential(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither messages nor log lines repeat the credentials."""
    caplog.set_level(logging.DEBUG)
    secret = new_key(tmp_path)
    door = authenticator(tmp_path)
    door.identify(bearer(secret))
    for wrong in (secret[:-1], f"{secret}x", "hunter2", "e30.hunter2.e30"):
        with pytest.raises(Unauthenticated) as refused:
            door.identify(bearer(wrong))
        assert wrong not in str(refused.value)
    KeyStore(tmp_path).revoke("web")
    wait_for(lambda: not lets_in(door, bearer(secret)), "a refusal", NOTICED_S)
    assert secret[20:] not in caplog.text
    assert "hunter2" not in caplog.text


def test_keys_and_tokens_work_side_by_side(tmp_path: Path) -> None:
    """If both are configured, either admits its holder, and anonymous callers are refused."""
    signer = Ed25519PrivateKey.generate()
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [OKPAlgorithm.to_jwk(signer.public_key(), as_dict=True)]}))
    door = authenticator(tmp_path, jwks=jwks)
    token = jwt.encode({"sub": "mia", "exp": time.time() + 60, "scope": "sql"}, signer, "EdDSA")
    assert door.identify(bearer(token)) == Principal("mia", frozenset({Scope("sql")}), "@mia")
    assert not lets_in(door, [])
    secret = new_key(tmp_path)
    wait_for(lambda: lets_in(door, bearer(secret)), "admission", NOTICED_S)
    assert door.identify(bearer(token)).name == "mia"


def test_file_out_of_reach_is_an_error(tmp_path: Path) -> None:
    """A file that cannot be read or written is named, and meanwhile every caller is refused."""
    secret = new_key(tmp_path)
    door = authenticator(tmp_path)
    path = tmp_path / KEYS
    path.unlink()
    path.mkdir()
    for attempt in (
        lambda: authenticator(tmp_path),
        KeyStore(tmp_path).read,
        lambda: new_key(tmp_path, "another"),
    ):
        with pytest.raises(OperationalError, match=r"keys\.json"):
            attempt()
    wait_for(lambda: not lets_in(door, bearer(secret)), "a refusal", NOTICED_S)
    with pytest.raises(Corrupt):
        door.identify([])


def test_failed_write_leaves_the_keys_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails costs the new key only, and leaves nothing behind."""
    new_key(tmp_path)
    before = KeyStore(tmp_path).read()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OperationalError, match="No space left"):
        new_key(tmp_path, "another")
    assert KeyStore(tmp_path).read() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["keys.json"]


def test_outgrown_scopes_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A key whose scope names a class that the application no longer has works, with a warning."""
    store = KeyStore(tmp_path)
    _, secret = store.add("old", [Scope("call:Item.gone"), ADD], None, NOW)
    authenticator(tmp_path).identify(bearer(secret)).require_call("Item", "add")
    assert "key old: scope call:Item.gone" in caplog.text


def test_nobody_is_anonymous_beyond_this_machine(tmp_path: Path) -> None:
    """Even if no check was made before, anonymous callers are admitted only if the settings say so."""
    assert not lets_in(authenticator(tmp_path, host="0.0.0.0"), [])
    assert lets_in(authenticator(tmp_path, host="0.0.0.0", open=1), [])
    new_key(tmp_path)
    assert not lets_in(authenticator(tmp_path, open=1), [])


def test_pages_of_other_sites_may_use_keys(tmp_path: Path) -> None:
    """Where credentials are needed, the page's origin is for CORS to judge."""
    secret = new_key(tmp_path)
    headers = [
        *bearer(secret),
        (b"origin", b"http://other.example"),
        (b"sec-fetch-site", b"cross-site"),
    ]
    assert authenticator(tmp_path).identify(headers).name == "web"


def _key_of(secret: str) -> ApiKey:
    return ApiKey(
        id=secret[4:12],
        name="web",
        digest=hashlib.sha256(secret.encode()).hexdigest(),
        last=secret[-4:],
        scopes=(ADD,),
        created=NOW,
    )
