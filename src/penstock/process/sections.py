"""The sections of a configuration: settings of one part of an application each.

Plain values; `config` reads and checks them.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of the gateways: HTTP in, replies out.

    Attributes:
        host: Address to bind to; one beyond loopback wants `keys`, `jwks` or `open`.
        port: TCP port, shared by all gateways of an application; 0 takes a free one.
        processes: The number of gateways.
        body_bytes_max: The most bytes of an HTTP body; the request must fit `record_bytes_max`.
        header_bytes_max: The most bytes of all headers of an HTTP request.
        depth_max: How deep JSON may be nested.
        key_bytes_max: The most bytes of an entity's key, and of a request id.
        limits: Limits on requests, separated by commas, as in `* 200/s per principal, Order 50 at once`.
        connections_max: The most open connections of a gateway; fewer if its limit of open files is low.
        waiting_max: The most requests that a gateway waits for; more get 429 with `Retry-After`.
        pipeline_window: The most requests under way of one pipelined connection.
        window_ms: If the log holds more requests than one epoch of this time processes, further ones wait
            for the turn of their principal; 0 appends every request at once.
        lag_max: Records that may wait in the log; beyond, requests get 429 with `Retry-After`.
        reply_timeout_ms: How long a call waits for its reply before it gets 504.
        receive_timeout_ms: How long a client may take to send a request.
        drain_ms: How long a gateway that stops waits for its requests.
        readers: Processes of each gateway that answer `@readonly` calls; with 0 such calls are
            requests in the log.
        tls_certificate: PEM file; with `tls_key` the gateways speak HTTPS only.
        tls_key: PEM file (PKCS #8).
        jwks: JSON Web Key Set file; its keys sign the bearer tokens that are accepted.
        jwt_algorithms: The signatures that are accepted, separated by commas.
        jwt_issuer: The only `iss` accepted; empty accepts any.
        jwt_audience: The name that `aud` must have; empty accepts every token.
        cors_origins: Origins that browsers may call from, separated by commas; empty allows no origin.
        open: 1 accepts every caller that reaches the port, without keys or tokens.
    """

    host: str = "127.0.0.1"
    port: int = 8_000
    processes: int = 1
    body_bytes_max: int = 512 << 10
    header_bytes_max: int = 32 << 10
    depth_max: int = 64
    key_bytes_max: int = 1_024
    limits: str = ""
    connections_max: int = 10_000
    waiting_max: int = 20_000
    pipeline_window: int = 2_000
    window_ms: int = 100
    lag_max: int = 1_000_000
    reply_timeout_ms: int = 300_000
    receive_timeout_ms: int = 30_000
    drain_ms: int = 30_000
    readers: int = 2
    tls_certificate: Path = Path()
    tls_key: Path = Path()
    jwks: Path = Path()
    jwt_algorithms: str = "RS256,ES256,EdDSA"
    jwt_issuer: str = ""
    jwt_audience: str = ""
    cors_origins: str = ""
    open: int = 0


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """Settings of the SQL view.

    Attributes:
        memory_mb: The memory of DuckDB; a query that needs more fails.
        threads: The threads of a query.
        time_ms: Longest a query may run.
        rows_max: Most rows that an answer has.
        requests_max: Newest requests and replies that the view keeps, and newest events of each stream.
    """

    memory_mb: int = 1_024
    threads: int = 2
    time_ms: int = 30_000
    rows_max: int = 1_000_000
    requests_max: int = 1_000_000


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Settings of snapshots, merging and forgetting.

    A snapshot is taken when one of its three bounds is reached and something has changed; 0 switches
    a bound off. Epochs are forgotten when one of the three `keep` bounds is exceeded and no reader
    needs them; 0 switches a bound off.

    Attributes:
        snapshot_epochs: Epochs between two snapshots.
        snapshot_s: Seconds between two snapshots.
        snapshot_requests: Requests between two snapshots.
        snapshots_max: Snapshots that are kept for queries of the past; older ones are thinned out.
        keep_epochs: Epochs that the journal keeps.
        keep_s: Seconds for which the journal keeps an epoch.
        keep_mb: Megabytes of epochs that the journal keeps.
        merge_epochs: Older epochs whose small files are merged into one.
        grace_s: Seconds for which files that were merged stay, for other Delta readers.
        nice: Priority of the process that does this: 19 is the lowest, 0 that of all others.
    """

    snapshot_epochs: int = 5_000
    snapshot_s: int = 900
    snapshot_requests: int = 1_000_000
    snapshots_max: int = 5
    keep_epochs: int = 0
    keep_s: int = 0
    keep_mb: int = 0
    merge_epochs: int = 2_000
    grace_s: int = 600
    nice: int = 19
