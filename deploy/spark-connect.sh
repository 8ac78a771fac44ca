#!/bin/sh
# Become the Spark Connect server of the settings in the environment. Secrets stay in two files that only this user reads.
# Variables: those of `tidemark spark-conf` (TIDEMARK_..., AWS_...), SPARK_MASTER (default local[*]), SPARK_DRIVER_HOST
# (the name at which workers find this host), SPARK_DRIVER_MEMORY (default 2g), SPARK_SECRETS_DIR (default /etc/tidemark),
# SPARK_JARS_FOLDER (default /opt/tidemark/jars), SPARK_LOCAL_IP (where the server listens, which asks for no
# login; default: at every address of the host).
set -eu
umask 077
folder="${SPARK_SECRETS_DIR:-/etc/tidemark}"
jars="${SPARK_JARS_FOLDER:-/opt/tidemark/jars}"
home="$(python3 -c 'import pyspark; print(pyspark.__path__[0])')"

tidemark spark-conf --secrets --json \
    --master "${SPARK_MASTER:-local[*]}" --host "${SPARK_DRIVER_HOST:-$(hostname)}" \
    --jars "$jars" --pgpass "$folder/pgpass" --python "${PYSPARK_PYTHON:-python3}" >"$folder/server.json"
FOLDER="$folder" python3 - <<'PY'
import json
import os
from pathlib import Path

folder = Path(os.environ["FOLDER"])
server = json.loads((folder / "server.json").read_text())
escaped = {name: value.replace("\\", "\\\\") for name, value in server["conf"].items()}
(folder / "connect.properties").write_text("".join(f"{name} {value}\n" for name, value in escaped.items()))
for path, line in server["files"].items():
    Path(path).write_text(f"{line}\n")
(folder / "server.json").unlink()
PY

export SPARK_HOME="$home" PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
# The server itself is no client, and each of the others would change what spark-submit starts.
unset SPARK_REMOTE SPARK_DAEMON_MEMORY SPARK_DAEMON_JAVA_OPTS PYSPARK_SUBMIT_ARGS MASTER
if [ -n "${SPARK_LOCAL_IP:-}" ]; then
    echo "spark.connect.grpc.binding.address $SPARK_LOCAL_IP" >>"$folder/connect.properties"
fi
exec "$home/bin/spark-submit" --properties-file "$folder/connect.properties" \
    --driver-memory "${SPARK_DRIVER_MEMORY:-2g}" \
    --class org.apache.spark.sql.connect.service.SparkConnectServer spark-internal
