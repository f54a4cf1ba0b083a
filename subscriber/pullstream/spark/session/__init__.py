"""One ingestion: the subscription, its buffered messages and the current batches."""
