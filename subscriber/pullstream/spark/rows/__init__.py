"""Conversion of messages into Arrow record batches."""
