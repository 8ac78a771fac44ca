"""Maintenance of tables: compaction, expiry of snapshots, removal of orphan files. It does not change rows."""
