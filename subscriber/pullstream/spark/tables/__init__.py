"""Tables that take each batch of a subscription once: files, Delta and Iceberg."""
