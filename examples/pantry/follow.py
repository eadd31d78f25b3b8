"""Follow the jars of the pantry, and keep the grams of each content: a reader of the change log, without Penstock.

    python follow.py SERVERS TOPIC FILE

The jars and the offsets are in one file, which is replaced as a whole. So a change counts once, also if this program is
killed. It ends at the end that the topic has when it begins; the next run goes on from there.
"""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SILENCE_S = 30.0


def follow(servers: str, topic: str, file: Path) -> dict[str, int]:
    """Bring the jars up to the end of the topic, and return the grams of each content."""
    jars: dict[str, dict[str, Any]] = {}
    offsets: dict[str, int] = {}
    if file.exists():
        jars, offsets = json.loads(file.read_text())
    settings = {
        "bootstrap.servers": servers,
        "group.id": "pantry-sums",
        "enable.auto.commit": False,  # the offsets are beside the sums
        "auto.offset.reset": "earliest",  # messages before an erasure are deleted; a fill follows them
        "isolation.level": "read_committed",  # else it would see changes that never were
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        read(consumer, topic, jars, offsets)
    written = file.with_suffix(".new")
    written.write_text(json.dumps([jars, offsets]))
    written.replace(file)
    sums: dict[str, int] = {}
    for jar in jars.values():
        sums[jar["content"]] = sums.get(jar["content"], 0) + jar["grams"]
    return sums


def read(consumer: Consumer, topic: str, jars: dict[str, Any], offsets: dict[str, int]) -> None:
    """Take the messages of each partition from its offset to the end that it has now."""
    found = consumer.list_topics(topic, SILENCE_S).topics[topic]
    if found.error:
        raise KafkaException(found.error)
    ends: dict[int | None, int] = {}
    partitions: dict[int, Any] = found.partitions
    for each in partitions:
        _, ends[each] = consumer.get_watermark_offsets(TopicPartition(topic, each), SILENCE_S)
    consumer.assign([TopicPartition(topic, each, offsets.get(str(each), 0)) for each in partitions])
    while ends:
        message = consumer.poll(SILENCE_S)
        if message is None:
            raise TimeoutError(f"no message for {SILENCE_S} s")
        error, partition, offset = message.error(), message.partition(), message.offset() or 0
        if error is None:
            take(message.key(), message.value(), jars)
            offsets[str(partition)] = offset + 1
        elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 -- its public name
            raise KafkaException(error)
        # While others write, a partition says again and again that it has ended, or never: so each counts once, and
        # the end that it had at the beginning is enough.
        if error is not None or offset + 1 >= ends.get(partition, 0):
            ends.pop(partition, None)


def take(key: Any, value: Any, jars: dict[str, dict[str, Any]]) -> None:
    """Take a message: a jar as it is now, its removal, or the tombstone behind it."""
    jar = None if value is None else json.loads(value)["after"]
    name = json.loads(key)["_key"]
    if jar is None:
        jars.pop(name, None)
    else:
        jars[name] = jar  # also if it was sent before: a fill sends all jars again


if __name__ == "__main__":
    found = follow(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.stdout.write(f"{json.dumps(found, sort_keys=True)}\n")
