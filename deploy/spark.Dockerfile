# The image of the Spark Connect server, and of the workers of a standalone cluster. It has no code of the project.
#   docker build -f deploy/spark.Dockerfile -t acme/tidemark-spark:1.4.0 deploy
FROM python:3.13-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 tidemark \
    && mkdir -p /opt/tidemark/jars /etc/tidemark \
    && chown tidemark /opt/tidemark/jars /etc/tidemark

# The same pyspark, pyarrow and numpy as in the other image: workers receive functions as code.
COPY tidemark-requirements.txt /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/tidemark-requirements.txt \
    && pip install --no-cache-dir --no-deps dagster-tidemark==0.2.0
USER tidemark
RUN tidemark jars --to /opt/tidemark/jars --kafka

ENV PYSPARK_PYTHON=python3.13 \
    SPARK_NO_DAEMONIZE=1
COPY --chown=tidemark spark-connect.sh /usr/local/bin/spark-connect
EXPOSE 15002
CMD ["/usr/local/bin/spark-connect"]
