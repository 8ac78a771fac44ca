"""What is due, and when: pure arithmetic over a plain graph and a plain history. No Dagster, no Spark."""
