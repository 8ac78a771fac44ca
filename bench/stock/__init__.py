"""A baseline with Dagster's defaults. To run it by hand, while `make dev FEED=none` runs, in the checkout:

eval "$(.venv/bin/tidemark env)"; unset SPARK_REMOTE
export TIDEMARK_LANDING_BUCKET=stock DAGSTER_HOME=/tmp/stock TIDEMARK_CATALOG_URI=jdbc:sqlite:/tmp/stock/catalog.db
export TIDEMARK_WAREHOUSE=/tmp/stock/warehouse
mkdir -p $DAGSTER_HOME && cp bench/stock/dagster.yaml $DAGSTER_HOME
.venv/bin/dagster dev -w bench/stock/workspace.yaml -p 3100
"""
