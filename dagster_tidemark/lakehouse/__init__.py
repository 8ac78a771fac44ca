"""Storage of tables: Iceberg tables, read and written through Spark. No Dagster."""
