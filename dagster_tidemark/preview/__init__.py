"""Previews: run changed code on Iceberg branches before it is deployed, then compare, publish or drop the rows."""
