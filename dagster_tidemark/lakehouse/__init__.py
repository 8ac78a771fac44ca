"""How tables are stored: Iceberg tables, read and written through Spark. No Dagster."""
