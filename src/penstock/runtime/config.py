"""`Config`: every setting of a running application, in one frozen, validated value."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from penstock.engine.execute import Limits
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a Spark runtime.

    Attributes:
        data: Directory of the application: log, journal, state, checkpoint.
        cores: Spark task slots of the embedded master.
        partitions: Tasks of a round and stores of the state; 0 means as many as cores.
        master: Spark master URL; empty means `local[cores,4]`.
        epoch_records_max: Admission limit: records that one epoch takes.
        epoch_bytes_max: Admission limit: body bytes that one epoch takes.
        small_epoch: An epoch of at most so many records runs in one task.
        poll_ms: How long Spark's source waits for records before it looks again.
        limits: What one transaction may use.
        record_bytes_max: The log's size limit of one request.
        retention_s: Seconds for which a request id stays known.
        driver_memory_mb: Heap of Spark's JVM.
    """

    data: Path
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    partitions: int = 0
    master: str = ""
    epoch_records_max: int = 10_000
    epoch_bytes_max: int = 64 << 20
    small_epoch: int = 400
    poll_ms: int = 50
    limits: Limits = field(default_factory=Limits)
    record_bytes_max: int = 1 << 20
    retention_s: int = 7 * 86_400
    driver_memory_mb: int = 1_024

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: A value cannot be used; says which, and what it may be.
        """
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be at least {least}")
        if self.partitions == 0:
            object.__setattr__(self, "partitions", self.cores)

    @property
    def spark_master(self) -> str:
        """The master URL that Spark is given."""
        return self.master or f"local[{self.cores},4]"


_AT_LEAST = {
    "cores": 1,
    "partitions": 0,
    "epoch_records_max": 1,
    "epoch_bytes_max": 1,
    "small_epoch": 0,
    "poll_ms": 1,
    "record_bytes_max": 1_024,
    "retention_s": 0,
    "driver_memory_mb": 256,
}
