"""The jars that Spark needs: always those for Iceberg, S3 and the catalogs; those for Kafka if Kafka is used.

Belongs here: coordinates, exclusions and the test that a folder is complete. Does not belong here: the download
(`local.spark.ivy`), and putting them on a class path (`dagster_tidemark.lakehouse.session`).
"""

import shutil
from contextlib import nullcontext

from dagster_tidemark.lakehouse.session import ICEBERG_VERSION
from dagster_tidemark.local.spark import ivy
from dagster_tidemark.local.spark.ivy import Bundle, JarsMissing, Report
from dagster_tidemark.settings import Settings

_AWS_SDK = "2.54.17"
COORDINATES = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",
    "org.apache.hadoop:hadoop-aws:3.4.2",  # for `s3a://` in user code; exactly the Hadoop inside the pyspark wheel
    *(
        f"software.amazon.awssdk:{part}:{_AWS_SDK}"
        for part in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client")
    ),
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.postgresql:postgresql:42.7.8",
)
EXCLUDED = (
    # Spark has these itself, and two versions of a library on a class path fail in unexpected places.
    "io.netty:*",
    "org.slf4j:*",
    "commons-logging:*",
    "commons-codec:*",
    "org.apache.httpcomponents:*",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.xerial.snappy:*",
    "org.lz4:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "org.checkerframework:*",
    "org.scala-lang.modules:*",
    # Only used by features that are off; the bundle alone is 612 MB.
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:*",
    "software.amazon.s3.analyticsaccelerator:*",
)
_PULLED_IN = (
    "org.apache.httpcomponents.client5:httpclient5:5.6.4",
    "org.apache.httpcomponents.core5:httpcore5:5.4.3",
    "org.apache.httpcomponents.core5:httpcore5-h2:5.4.3",
    "org.reactivestreams:reactive-streams:1.0.4",
    "software.amazon.eventstream:eventstream:1.0.1",
    *(
        f"software.amazon.awssdk:{part}:{_AWS_SDK}"
        for part in (
            "annotations",
            "apache5-client",
            "arns",
            "auth",
            "aws-core",
            "aws-json-protocol",
            "aws-query-protocol",
            "aws-xml-protocol",
            "checksums",
            "checksums-spi",
            "crt-core",
            "endpoints-spi",
            "http-auth",
            "http-auth-aws",
            "http-auth-aws-eventstream",
            "http-auth-spi",
            "http-client-spi",
            "identity-spi",
            "json-utils",
            "metrics-spi",
            "netty-nio-client",
            "profiles",
            "protocol-core",
            "regions",
            "retries",
            "retries-spi",
            "sdk-core",
            "third-party-jackson-core",
            "utils",
            "utils-lite",
        )
    ),
)
KAFKA = Bundle(
    "spark-kafka",
    (
        (
            (
                "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
                "org.apache.kafka:kafka-clients:3.9.1",
                "org.apache.commons:commons-pool2:2.12.1",
            ),
            (*EXCLUDED, "org.apache.spark:spark-token-provider-kafka-0-10_2.13"),
        ),
        # Not every mirror has version 4.1 of this jar. A call cannot request a jar that it excludes.
        (
            ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
            ("org.apache.spark:spark-tags_2.13", "org.apache.kafka:*", "org.apache.hadoop:*", "org.scala-lang:*"),
        ),
    ),
    count=4,
)
"""Jars of Spark's Kafka source."""


def expected_jars() -> set[str]:
    """Return the file names of a complete folder."""
    parts = (coordinate.split(":") for coordinate in (*COORDINATES, *_PULLED_IN))
    return {f"{group}_{artifact}-{version}.jar" for group, artifact, version in parts}


def missing_jars(settings: Settings) -> list[str]:
    """Return the jars that the folder lacks."""
    folder = settings.jars_dir / "jars"
    return sorted(expected_jars() - {jar.name for jar in folder.glob("*")})


def fetch_jars(settings: Settings, report: Report = lambda count, total: None) -> None:
    """Fill the jar folder with exactly the expected jars. Download only missing ones.

    Raises:
        JarsMissing: some could not be fetched.
    """
    folder = settings.jars_dir
    (folder / "jars").mkdir(parents=True, exist_ok=True)
    with ivy.locked(folder):
        output = _fetch_missing(settings, report) if missing_jars(settings) else ""
        if missing := missing_jars(settings):
            raise JarsMissing(missing, output)
        for jar in (folder / "jars").iterdir():
            if jar.name not in expected_jars():
                jar.unlink()  # of an older version: two versions on one class path do not work


def _fetch_missing(settings: Settings, report: Report) -> str:
    total, output = len(expected_jars()), ""
    cache = ivy.cache_folder(settings.jars_dir)
    with ivy.locked(cache) if cache != settings.jars_dir else nullcontext():
        if expected_jars() - {jar.name for jar in (cache / "jars").glob("*.jar")}:

            def tell() -> None:
                report(min(ivy.downloaded(cache), total), total)

            output = ivy.run_ivy(settings, cache, COORDINATES, EXCLUDED, tell)
            shutil.rmtree(cache / "cache", ignore_errors=True)  # Ivy's own copy of everything
        for name in missing_jars(settings):
            if (cache / "jars" / name).exists():
                ivy.put(cache / "jars" / name, settings.jars_dir / "jars" / name)
    report(total - len(missing_jars(settings)), total)
    return output
