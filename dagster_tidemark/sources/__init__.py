"""What comes in: feeds, notifications about them, and what lies in the bucket. No Dagster, no Spark."""
