"""Reading of a range of a Kafka topic with Spark, for a backlog that is too large for one process.

Belongs here: the options of Spark's Kafka source, and the meaning of its errors. Does not belong here: the choice of
the range (`sources.kafka_range`), and commits.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.errors import Terminal, TidemarkError, Transient
from dagster_tidemark.lakehouse.table import MESSAGE
from dagster_tidemark.sources.kafka_errors import KafkaRefused, KafkaUnavailable, TopicUnknown
from dagster_tidemark.sources.kafka_range import Range

COLUMNS = {
    "body": "binary",
    **MESSAGE,
    "is_null": "boolean",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Columns of the rows, as in `sources.received_messages.ReceivedMessage`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class RangeGone(Transient):
    """Error for offsets that are no longer in the topic, because retention deleted them or the topic was replaced."""


class NoKafkaSource(Terminal):
    """Error for a Spark server that was started without the jars of the Kafka source."""


@contextmanager
def naming_the_broker(read: Range) -> Iterator[None]:
    """Replace Spark's error with one line that names the topic and the fault. Wrap the call that evaluates the frame.

    Raises:
        RangeGone: offsets no longer exist; a new listing of the offsets shows which.
        KafkaUnavailable, TopicUnknown, KafkaRefused: see `KafkaTopic`.
        NoKafkaSource: the Spark server has no Kafka source.
    """
    try:
        yield
    except PySparkException as error:
        said = str(error)
        for words, named, meaning in _MEANINGS:
            if words in said:
                raise named(f"kafka:{read.topic}: {meaning}") from error
        raise


_MEANINGS: tuple[tuple[str, type[TidemarkError], str], ...] = (
    ("KafkaIllegalStateException", RangeGone, "the offsets to read no longer exist; list the offsets again"),
    ("UnknownTopicOrPartitionException", TopicUnknown, "there is no such topic; create it, or correct its name"),
    ("AuthorizationException", KafkaRefused, "the broker does not allow Spark to read the topic"),
    ("SaslAuthenticationException", KafkaRefused, "the broker refused the login of Spark: wrong user or password"),
    ("SslAuthenticationException", KafkaRefused, "Spark does not trust the broker's certificate"),
    ("kafka.common.errors.TimeoutException", KafkaUnavailable, "no broker answers Spark; is it running?"),
    (
        "Failed to find data source: kafka",
        NoKafkaSource,
        "Spark has no Kafka source; start its server with the jars of spark-sql-kafka-0-10 on the class path",
    ),
)


def read_range(spark: SparkSession, options: Mapping[str, str], read: Range) -> DataFrame:
    """Return one row per record, in any order, without aborted records. The topic is read when the frame is evaluated.

    The topic is read by name, so it may be a new topic with the same name. The caller must check `is_still_of` after
    reading the rows and before committing them.

    Args:
        options: Options of librdkafka. Security options are translated to options of Java's client.
    """
    starts = {partition: start for partition, start in read.starts.items() if start < read.ends[partition]}
    if not starts:
        return spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
    reader = spark.read.format("kafka").options(**_security(options))
    reader = reader.options(
        **{
            "kafka.bootstrap.servers": options["bootstrap.servers"],
            "assign": json.dumps({read.topic: sorted(starts)}),
            "startingOffsets": json.dumps({read.topic: {str(p): start for p, start in starts.items()}}),
            "endingOffsets": json.dumps({read.topic: {str(p): read.ends[p] for p in starts}}),
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            # With the default timeouts, each call would wait two minutes for an unreachable broker.
            "kafkaConsumer.pollTimeoutMs": "4000",
            "kafka.default.api.timeout.ms": "8000",
            "kafka.request.timeout.ms": "8000",  # must not exceed the API timeout
        }
    )
    place = F.lit(f"{read.topic_id}/"), F.col("partition"), F.lit("/"), F.lpad(F.col("offset").cast("string"), 20, "0")
    return reader.load().select(
        F.coalesce("value", F.lit(b"")).alias("body"),
        F.concat(*place).alias("message_id"),
        F.concat(F.lit(f"kafka:{read.topic}/"), F.col("partition")).alias("message_source"),
        F.lit(read.topic_id).alias("topic_id"),
        F.col("partition").alias("topic_partition"),
        F.col("offset").alias("topic_offset"),
        # The time comes from the producer, so it is limited to 1970 to now, as in `sources.kafka_client`.
        F.least(F.greatest("timestamp", F.lit(_EPOCH)), F.lit(datetime.now(UTC))).alias("sent_at"),
        F.col("value").isNull().alias("is_null"),
        F.col("headers"),
    )


def _security(options: Mapping[str, str]) -> dict[str, str]:
    protocol = options.get("security.protocol", "PLAINTEXT")
    told = {"kafka.security.protocol": protocol}
    if protocol.startswith("SASL_"):
        mechanism = options["sasl.mechanism"]
        user, password = (_quoted(options[name]) for name in ("sasl.username", "sasl.password"))
        told["kafka.sasl.mechanism"] = mechanism
        told["kafka.sasl.jaas.config"] = f"{_LOGIN[mechanism]} required username={user} password={password};"
    if "ssl.ca.location" in options:
        # The content of the file is passed, because other machines do not have the file.
        told["kafka.ssl.truststore.type"] = "PEM"
        told["kafka.ssl.truststore.certificates"] = Path(options["ssl.ca.location"]).read_text()
    return told


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
