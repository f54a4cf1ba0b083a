"""The protocol of a spool: segments, manifests, plans and marks in one folder of a store."""
