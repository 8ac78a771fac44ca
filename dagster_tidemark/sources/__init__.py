"""Sources of data: feeds, notifications about them, and objects in the landing bucket. No Dagster, no Spark."""
