"""`CallEncoder`: encodes calls and appends for the log; a reader does it if code of the application runs for that."""

from penstock.base.class_code import has_code
from penstock.gateway.reader_pool import ReaderPool
from penstock.model.application import App
from penstock.model.declaration import RESERVED
from penstock.model.limit import STREAMS
from penstock.model.request import APPEND
from penstock.model.signature import Signature
from penstock.process.config import Config
from penstock.runtime.reads.arguments import ArgumentSource, CallTarget, SizeLimits, encoded_call


class CallEncoder:
    """Encodes the calls and appends of one gateway."""

    def __init__(self, app: App, config: Config, pool: ReaderPool | None) -> None:
        """Create the encoder.

        Args:
            pool: The readers; without them, code of the application runs in this process.
        """
        self._app = app
        self._limits = SizeLimits(config.gateway.key_bytes_max, config.record_bytes_max)
        self._timeout_s = config.gateway.reply_timeout_ms / 1_000
        self._pool = pool
        self._with_code = frozenset() if pool is None else calls_with_code(app)

    async def encoded(self, target: CallTarget, source: ArgumentSource) -> tuple[bytes, bytes]:
        """Return the body and the access hint of a log entry for a call or an append.

        Raises:
            RequestError: The target does not exist, or the arguments do not fit.
        """
        if self._with_code and (target.owner, target.method) in self._with_code:
            assert self._pool is not None, "only a pool has calls with code"
            return await self._pool.encoded(target, source, self._timeout_s)
        return encoded_call(self._app, self._limits, target, source)


def calls_with_code(app: App) -> frozenset[tuple[str, str]]:
    """Return `CallTarget.owner` and the method of each call or append whose arguments or events run code."""
    calls = [("", name) for name, signature in app.functions.items() if _has_code(signature)]
    for entity in app.entities.values():
        has_key_code = has_code(entity.key_annotation)
        calls += [
            (entity.name, method)
            for method in (*entity.methods, *RESERVED)
            if has_key_code or _has_code(app.signature(entity.name, method))
        ]
    calls += [
        (f"{STREAMS}{name}", APPEND)
        for name, stream in app.topology.streams.items()
        if stream.is_open and has_code(stream.annotation)
    ]
    return frozenset(calls)


def _has_code(signature: Signature) -> bool:
    return any(has_code(parameter.annotation) for parameter in signature.parameters.values())
