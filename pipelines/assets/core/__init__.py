"""The core tables: landed data, typed, validated and deduplicated."""
