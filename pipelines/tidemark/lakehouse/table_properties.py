"""What every table of the lake is created with, whoever creates it: Spark (`catalog`) or pyiceberg (`append`)."""

# Writers of disjoint partitions never conflict but have to take turns at the catalog.
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "50",
    # One join instead of two: a file of 20 rows merged in 0.7 s instead of 1.0 s.
    "write.merge.mode": "merge-on-read",
    # Each commit writes a metadata.json that names all snapshots, 1.4 KB each: kept for ever they would be 70 GB after
    # 10,000 commits. A reader that was handed one of the last five still finds it.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
    "write.metadata.compression-codec": "gzip",
    # Java's default and not pyiceberg's. No smaller manifests than 8 MB: what is to be merged is packed by size, mostly
    # headers, and the nearer a manifest is to the limit, the oftener it would be written again.
    "commit.manifest-merge.enabled": "true",
    # One task for 128 small files, not for 32: on the hours that arrive in many files a tenth less.
    "read.split.open-file-cost": "1048576",
}
