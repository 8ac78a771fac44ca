"""A REST catalog for proofs: Iceberg's reference server, and a gateway that issues short-lived credentials."""
