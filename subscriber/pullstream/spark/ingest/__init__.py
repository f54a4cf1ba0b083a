"""The ready-made ingestion job: decoding, targets and progress."""
