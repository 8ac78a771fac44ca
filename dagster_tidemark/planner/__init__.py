"""Due work and due times: pure arithmetic over a plain graph and a plain history. No Dagster, no Spark."""
