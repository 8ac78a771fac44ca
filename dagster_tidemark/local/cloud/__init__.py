"""The local cloud: S3 and SQS in one process."""
