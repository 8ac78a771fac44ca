"""The core tables: what landed, typed, validated and without doubles."""
