#!/bin/sh
# Save or restore the two databases of a deployment. Variables: TIDEMARK_CATALOG_URI (PostgreSQL), DAGSTER_PG_HOST, _PORT
# (default 5432), _USER, _PASSWORD, _DB; PGSSLMODE for Dagster's database (default require); SECONDS_BETWEEN_BEATS
# (default 35).
#   databases.sh save FOLDER       # at any time, beside running processes
#   databases.sh restore FOLDER    # while no daemon and no code server runs; then it compares catalog and warehouse
set -eu
umask 077
what="${1:?save or restore}" folder="${2:?the folder of the dumps}"

of_dagster() {
    PGHOST="$DAGSTER_PG_HOST" PGPORT="${DAGSTER_PG_PORT:-5432}" PGUSER="$DAGSTER_PG_USER" PGPASSWORD="$DAGSTER_PG_PASSWORD" \
        PGDATABASE="$DAGSTER_PG_DB" PGSSLMODE="${PGSSLMODE:-require}" "$@"
}

# The password stays out of the arguments, which every user of the host may read.
of_catalog() {
    variables=$(python3 - <<'PY'
import os
import shlex
from urllib.parse import parse_qsl, urlsplit

uri = urlsplit(os.environ["TIDEMARK_CATALOG_URI"].removeprefix("jdbc:"))
given = dict(parse_qsl(uri.query))
found = {
    "PGHOST": uri.hostname or "127.0.0.1",
    "PGPORT": str(uri.port or 5432),
    "PGDATABASE": uri.path.lstrip("/"),
    "PGUSER": given.get("user", ""),
    "PGPASSWORD": given.get("password", ""),
    "PGSSLMODE": given.get("sslmode", "prefer"),
}
print("export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in found.items()))
PY
    )
    eval "$variables"
    "$@"
}

case "$what" in
save)
    mkdir -p "$folder"
    # Dagster's database first: it may know less than the catalog, and never more. Work that it does not know is looked
    # at again, and found done.
    of_dagster pg_dump --format=custom --file="$folder/dagster.dump"
    (of_catalog pg_dump --format=custom --file="$folder/catalog.dump")
    ;;
restore)
    last='SELECT max(timestamp) FROM daemon_heartbeats'
    newest_beat() { of_dagster psql --no-psqlrc --tuples-only --no-align --command="$last" 2>/dev/null || true; }
    beats='SELECT count(*) FROM daemon_heartbeats WHERE timestamp > now() AT TIME ZONE '"'UTC'"' - interval '"'1 minute'"
    if [ "$(of_dagster psql --no-psqlrc --tuples-only --no-align --command="$beats" 2>/dev/null || echo 0)" != 0 ]; then
        echo "a daemon runs on this instance: stop it and the code servers, and wait a minute" >&2
        exit 1
    fi
    # The clock of a daemon's host may be behind the database's. A daemon that runs sends a heartbeat every 30 seconds.
    before=$(newest_beat)
    [ -z "$before" ] || sleep "${SECONDS_BETWEEN_BEATS:-35}"
    if [ "$(newest_beat)" != "$before" ]; then
        echo "a daemon runs, and its clock is behind: stop it and the code servers, and synchronize the clocks" >&2
        exit 1
    fi
    of_dagster sh -c 'pg_restore --clean --if-exists --no-owner --exit-on-error --dbname="$PGDATABASE" "$0"' \
        "$folder/dagster.dump"
    (of_catalog sh -c 'pg_restore --clean --if-exists --no-owner --exit-on-error --dbname="$PGDATABASE" "$0"' \
        "$folder/catalog.dump")
    # The heartbeats are those of the saved moment. No daemon runs.
    of_dagster psql --no-psqlrc --quiet --command='DELETE FROM daemon_heartbeats'
    tidemark restore-catalog --apply
    ;;
*)
    echo "expected save or restore, found: $what" >&2
    exit 2
    ;;
esac
