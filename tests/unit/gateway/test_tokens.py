"""Bearer tokens: which are let in, as whom, and until when."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from penstock.base.ids import RequestId
from penstock.errors import ConfigError, Corrupt, PenstockError, Unauthenticated
from penstock.files.local_root import LocalRoot
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.keys import KeyRing
from penstock.gateway.auth.principal import Principal, Scope
from penstock.gateway.auth.tokens import (
    CACHED_MAX,
    LEEWAY_S,
    TokenVerifier,
    allowed_algorithms,
    read_keys,
)
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.model.principal import principal_of
from penstock.process.config import GatewayConfig
from tests.waiting import wait_for

RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
NOTICED_S = 60.0
HOUR_S = 3_600
ALL = frozenset({"RS256", "PS256", "ES256", "EdDSA"})
Entry = dict[str, Any]

RSA_ENTRY: Entry = {**RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True), "kid": "rsa"}
EC_ENTRY: Entry = {**ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True), "kid": "ec"}
ED_ENTRY: Entry = {**OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True), "kid": "ed"}
ENTRIES = (RSA_ENTRY, EC_ENTRY, ED_ENTRY)


def file_of(folder: Path, *entries: Entry) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": entries}))
    return path


def tokens(folder: Path, *entries: Entry, **settings: Any) -> TokenVerifier:
    path = file_of(folder, *(entries or ENTRIES))
    return TokenVerifier(GatewayConfig(jwks=path, **settings))


def now_s() -> int:
    return int(time.time())


def signed(
    claims: dict[str, Any], *, key: Any = ED_KEY, algorithm: str = "EdDSA", kid: str | None = "ed"
) -> bytes:
    claims = {"sub": "mia", "exp": now_s() + HOUR_S, **claims}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm, {"kid": kid} if kid else None).encode()


def segment(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def forged(header: dict[str, Any], signature: bytes = b"") -> bytes:
    claims = {"sub": "mia", "exp": now_s() + HOUR_S, "scope": "*"}
    mark = base64.urlsafe_b64encode(signature or b"x").rstrip(b"=")
    return b".".join([segment(header), segment(claims), mark])


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
)
def test_token_identifies_its_subject(tmp_path: Path, key: Any, algorithm: str, kid: str) -> None:
    """A token signed with any key of the file stands for its subject and its scopes."""
    token = signed({"scope": "sql call:Item.add"}, key=key, algorithm=algorithm, kid=kid)
    expected = Principal("mia", frozenset({Scope("sql"), Scope("call:Item.add")}), "@mia")
    assert tokens(tmp_path).principal(token, time.time()) == expected


def test_a_ticket_has_the_rights_of_its_token_and_ends_with_it(tmp_path: Path) -> None:
    """Without a header, a ticket gives the same principal as the token, until the token has expired."""
    ends_s = now_s() + HOUR_S
    verifier = tokens(tmp_path, jwt_claims="role")
    keys = WatchedFile[KeyRing | None](LocalRoot(tmp_path), "keys", lambda _: None)
    clock_s = time.time()
    authenticator = Authenticator(keys, verifier, None, lambda: clock_s, secret=bytes(16))
    token = signed({"scope": "read follow:rays", "role": ["é", 1], "exp": ends_s})
    headers = [(b"authorization", b"Bearer " + token)]
    ticket, _ = authenticator.ticket(headers, b"/streams/rays", b"from=0")
    scope: dict[str, Any] = {"headers": [], "method": "GET", "path": "/streams/rays"}
    scope["query_string"] = f"from=0&ticket={ticket}".encode()
    principal, expected = (
        authenticator.follower(scope, opens=True),
        verifier.principal(token, clock_s),
    )
    assert (principal, principal.rights) == (expected, expected.rights)
    clock_s = ends_s + LEEWAY_S
    with pytest.raises(Unauthenticated, match="the token with which the ticket was asked for has"):
        authenticator.follower(scope)


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "openid  sql profile"}, {"sql"}),
        ({"scopes": ["sql", "email"]}, {"sql"}),
        ({"scopes": "sql read"}, {"sql", "read"}),
        ({"scope": "sql", "scopes": ["*"]}, {"sql"}),
        ({}, set()),
    ],
)
def test_scopes_of_other_services_grant_nothing(
    tmp_path: Path, claims: dict[str, Any], scopes: set[str]
) -> None:
    """Of the claims of a token, only scopes of this grammar count, and a token may have none."""
    assert tokens(tmp_path).principal(signed(claims), time.time()).scopes == scopes


def test_named_claims_are_shown(tmp_path: Path) -> None:
    """Handlers see the claims that the setting names, as plain values; a claim that cannot be kept refuses the token."""
    door = tokens(tmp_path, jwt_claims="role, clinics")
    claims = {"role": "head", "clinics": [7, {"a": None}], "email": "mia@x"}
    principal = door.principal(signed(claims), time.time())
    shown = principal_of(RequestId("@mia~1"), principal.rights)
    assert (shown.id, shown.claims) == ("@mia", {"role": "head", "clinics": [7, {"a": None}]})
    for strange, why in (
        ({"role": "x" * 1_100}, "take more than 1024 bytes"),
        ({"role": 1 << 80}, "cannot be kept"),
        ({"role": "\ud800"}, "cannot be kept"),
    ):
        with pytest.raises(Unauthenticated, match=why):
            door.principal(signed(strange), time.time())
    with pytest.raises(ConfigError, match="iat differs in each token"):
        tokens(tmp_path, jwt_claims="role,iat")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "lacks a claim"),
        ({"exp": 1}, "has expired"),
        ({"exp": "soon"}, "is not valid"),
        ({"exp": float("inf")}, "is not valid"),
        ({"nbf": 1 << 40}, "not valid yet"),
        ({"iat": 1 << 40}, "not valid yet"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "lacks a claim"),
        ({"iss": "other"}, "another issuer"),
        ({"iss": None}, "lacks a claim"),
        ({"sub": 7}, "is not valid"),
        ({"scope": 7}, "neither a text nor a list"),
        ({"scope": ["sql", 7]}, "neither a text nor a list"),
    ],
)
def test_claims_that_do_not_fit_are_refused(
    tmp_path: Path, claims: dict[str, Any], reason: str
) -> None:
    """Expiry, start, issuer and audience are all checked, with values of any type."""
    door = tokens(tmp_path, jwt_issuer="us", jwt_audience="shop")
    good = {"iss": "us", "aud": ["shop", "x"], "scope": "sql"}
    assert door.principal(signed(good), time.time()).name == "mia"
    with pytest.raises(Unauthenticated, match=reason):
        door.principal(signed({**good, **claims}), time.time())


def test_audience_is_refused_where_none_is_configured(tmp_path: Path) -> None:
    """A token that names an audience is for that audience only."""
    with pytest.raises(Unauthenticated, match="another audience"):
        tokens(tmp_path).principal(signed({"aud": "other"}), time.time())


def test_algorithms_cannot_be_confused(tmp_path: Path) -> None:
    """Neither `none`, nor a public key as an HMAC secret, nor another kind's algorithm gets in."""
    door = tokens(tmp_path)
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    hmac_of = jwt.get_algorithm_by_name("HS256").sign
    claims = segment({"sub": "mia", "exp": now_s() + HOUR_S})
    for kid in ("rsa", "ec", "ed"):
        for secret in (public, json.dumps(RSA_ENTRY).encode()):
            head = segment({"alg": "HS256", "kid": kid}) + b"." + claims
            mark = base64.urlsafe_b64encode(hmac_of(head, secret)).rstrip(b"=")
            refuse(door, head + b"." + mark)
        for algorithm in ("none", "None", "", "HS256", "RS512", "ES384", None, 1, ["EdDSA"]):
            refuse(door, forged({"alg": algorithm, "kid": kid}))
    refuse(door, signed({}, key=RSA_KEY, algorithm="RS256", kid="ec"))
    refuse(door, signed({}, key=RSA_KEY, algorithm="PS256", kid="rsa"))


def test_key_is_bound_to_its_own_algorithm(tmp_path: Path) -> None:
    """A key that names its algorithm verifies no other, even of its own kind."""
    door = tokens(tmp_path, {**RSA_ENTRY, "alg": "PS256"}, jwt_algorithms="RS256, PS256")
    door.principal(signed({}, key=RSA_KEY, algorithm="PS256", kid="rsa"), time.time())
    refuse(door, signed({}, key=RSA_KEY, algorithm="RS256", kid="rsa"))


def test_token_brings_no_key_of_its_own(tmp_path: Path) -> None:
    """Keys inside a token, or at an address that it names, are ignored."""
    door = tokens(tmp_path)
    thief = ed25519.Ed25519PrivateKey.generate()
    entry = OKPAlgorithm.to_jwk(thief.public_key(), as_dict=True)
    claims = {"sub": "mia", "exp": now_s() + HOUR_S}
    for more in ({"jwk": entry}, {"jku": "file:///dev/null"}, {"x5u": "file:///dev/null"}):
        refuse(door, jwt.encode(claims, thief, "EdDSA", {"kid": "ed", **more}).encode())
    refuse(door, jwt.encode(claims, ED_KEY, "EdDSA", {"kid": "ed", "crit": ["x"], "x": 1}).encode())


def test_key_id_finds_the_key(tmp_path: Path) -> None:
    """An unknown key id is refused; a token may omit it only if there is one key."""
    door = tokens(tmp_path)
    refuse(door, signed({}, kid="other"))
    refuse(door, signed({}, kid=None))
    refuse(door, signed({}, kid="rsa"))
    alone = tokens(tmp_path, ED_ENTRY)
    assert alone.principal(signed({}, kid=None), time.time()).name == "mia"


def test_changed_token_is_refused(tmp_path: Path) -> None:
    """No token with a flipped bit, a lost end or an appendix gets in, remembered or not."""
    door = tokens(tmp_path)
    token = signed({"scope": "sql"}, key=EC_KEY, algorithm="ES256", kid="ec")
    assert door.principal(token, time.time()).name == "mia"

    @given(st.integers(0, len(token) * 8 - 1))
    def flipped_bit(bit: int) -> None:
        changed = bytearray(token)
        changed[bit // 8] ^= 1 << bit % 8
        refuse(door, bytes(changed))

    @given(st.integers(0, len(token) - 1), st.binary(max_size=9))
    def other_end(length: int, end: bytes) -> None:
        if token[:length] + end != token:
            refuse(door, token[:length] + end)

    flipped_bit()
    other_end()
    for last in range(256):  # the last bits of base64 belong to no byte
        if last != token[-1]:
            refuse(door, token[:-1] + bytes([last]))
    for end in (b"=", b"==", b".", b"\n", b"A"):
        refuse(door, token + end)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
HEADS = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from(["EdDSA", "RS256", "none", "HS256"]) | JSON,
        "kid": st.sampled_from(["rsa", "ec", "ed"]) | JSON,
        "crit": JSON,
        "b64": JSON,
        "typ": JSON,
    },
)


def test_forged_token_is_refused_whatever_it_holds(tmp_path: Path) -> None:
    """Any header, claims and signature without a valid key are a refusal, and no other error."""
    door = tokens(tmp_path)

    @given(HEADS | JSON, JSON, st.binary(max_size=80))
    def forgery(head: object, claims: object, signature: bytes) -> None:
        mark = base64.urlsafe_b64encode(signature).rstrip(b"=")
        refuse(door, b".".join([segment(head), segment(claims), mark]))

    @given(st.binary(max_size=60), st.binary(max_size=60))
    def noise(head: bytes, claims: bytes) -> None:
        parts = (base64.urlsafe_b64encode(one).rstrip(b"=") for one in (head, claims, b"x"))
        refuse(door, b".".join(parts))

    forgery()
    noise()
    refuse(door, base64.urlsafe_b64encode(b"[" * 5_000).rstrip(b"=") + b".e30.eA")


def test_remembered_token_expires(tmp_path: Path) -> None:
    """A verified token is verified again after its expiry, and refused then."""
    door = tokens(tmp_path)
    token = signed({"exp": now_s() - LEEWAY_S + 2})
    assert door.principal(token, time.time()).name == "mia"
    wait_for(lambda: not lets_in(door, token), "a refusal", NOTICED_S)
    with pytest.raises(Unauthenticated, match="has expired"):
        door.principal(token, time.time())


def test_memory_of_tokens_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens come, only so many are remembered, and all of them are let in."""
    assert CACHED_MAX <= 10_000
    monkeypatch.setattr("penstock.gateway.auth.tokens.CACHED_MAX", 5)
    door = tokens(tmp_path)
    for number in range(12):
        assert door.principal(signed({"sub": f"s{number}"}), time.time()).name == f"s{number}"
    assert len(door._cached) == 5


def test_changed_file_is_noticed(tmp_path: Path) -> None:
    """A key that leaves the file verifies no token any more, not even a cached one."""
    door = tokens(tmp_path)
    mine, other = signed({}), signed({}, key=EC_KEY, algorithm="ES256", kid="ec")
    assert lets_in(door, mine)
    file_of(tmp_path, EC_ENTRY)
    wait_for(lambda: not lets_in(door, mine), "a refusal", NOTICED_S)
    assert lets_in(door, other)
    (tmp_path / "jwks.json").write_text("{")
    wait_for(lambda: not lets_in(door, other), "a refusal", NOTICED_S)
    with pytest.raises(Corrupt):
        door.principal(other, time.time())
    file_of(tmp_path, ED_ENTRY)
    wait_for(lambda: lets_in(door, mine), "admission", NOTICED_S)


def test_subject_is_fit_for_a_log(tmp_path: Path) -> None:
    """A name is short and printable, for any content of the token."""
    name = tokens(tmp_path).principal(signed({"sub": "a\nb\x1b[2J" + "c" * 500}), time.time()).name
    assert name.isprintable()
    assert len(name) == 128


def test_no_two_subjects_share_their_ids(tmp_path: Path) -> None:
    """Request ids are separate, also if the displayed names of two principals are equal."""
    door = tokens(tmp_path)
    subjects = ["mia", "mia~x", "mia%7Ex", "a/b", "\u00e9", "=", "c" * 300, "c" * 301, "", None]
    claims = [{"sub": one, "scope": "sql"} for one in subjects]
    given = [signed(one if one["sub"] is not None else {"sub": "", "n": 1}) for one in claims]
    found = [door.principal(one, time.time()).namespace for one in given]
    assert len(set(found)) == len(subjects)
    assert found[:5] == ["@mia", "@mia%7Ex", "@mia%257Ex", "@a%2Fb", "@%C3%A9"]
    assert all(len(one) <= 257 and "~" not in one for one in found)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, "symmetric"),
        ({**ED_ENTRY, "d": "c2VjcmV0"}, "private"),
        ({**ED_ENTRY, "alg": "RS256"}, "its alg 'RS256' is not among EdDSA"),
        ({**RSA_ENTRY, "alg": "HS256"}, "its alg 'HS256' is not among"),
        ({**ED_ENTRY, "kid": 7}, "its kid is not a string"),
        ({**ED_ENTRY, "kid": "x", "x": "!"}, "is malformed"),
        ({**EC_ENTRY, "x": EC_ENTRY["y"]}, "is malformed"),
        (ED_ENTRY, "has the kid of another key"),
    ],
)
def test_key_that_must_not_be_there_is_refused(entry: Entry, reason: str) -> None:
    """One wrong key makes the whole file wrong, and the message says which and never shows it."""
    data = json.dumps({"keys": [ED_ENTRY, entry]}).encode()
    with pytest.raises(ConfigError, match="key 2") as refused:
        read_keys(Path("jwks.json"), data, ALL)
    assert reason in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)


def test_short_rsa_key_is_refused() -> None:
    """An RSA key below 2,048 bits verifies nothing."""
    weak = rsa.generate_private_key(65_537, 1_024).public_key()
    data = json.dumps({"keys": [RSAAlgorithm.to_jwk(weak, as_dict=True)]}).encode()
    with pytest.raises(ConfigError, match="has 1024 bits"):
        read_keys(Path("jwks.json"), data, ALL)


def test_keys_for_other_uses_are_left_out() -> None:
    """Keys for encryption, of an unknown type, or for disallowed algorithms are ignored."""
    entries = [
        {**RSA_ENTRY, "use": "enc"},
        {"kty": "new", "kid": "new"},
        {"kty": "OKP", "crv": "X25519", "x": "x"},
        ED_ENTRY,
        EC_ENTRY,
    ]
    data = json.dumps({"keys": entries}).encode()
    assert list(read_keys(Path("jwks.json"), data, frozenset({"EdDSA"}))) == ["ed"]


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[1]}'])
def test_file_without_keys_is_refused(data: bytes | None) -> None:
    """A file without any usable key is an error at the start."""
    with pytest.raises(ConfigError, match=r"^gateway\.jwks: "):
        read_keys(Path("jwks.json"), data, ALL)


@pytest.mark.parametrize("text", ["", " , ", "none", "HS256", "RS256,HS512", "rs256", "*"])
def test_only_asymmetric_algorithms_can_be_allowed(text: str) -> None:
    """The allow-list cannot be opened to `none` or to shared secrets."""
    with pytest.raises(ConfigError, match="cannot be accepted"):
        allowed_algorithms(text)


def test_default_algorithms_are_allowed() -> None:
    """The setting's default is one that can be used."""
    default = GatewayConfig().jwt_algorithms
    assert allowed_algorithms(default) == {"RS256", "ES256", "EdDSA"}


def lets_in(door: TokenVerifier, token: bytes) -> bool:
    try:
        door.principal(token, time.time())
    except PenstockError:
        return False
    return True


def refuse(door: TokenVerifier, token: bytes) -> None:
    with pytest.raises(Unauthenticated):
        door.principal(token, time.time())
