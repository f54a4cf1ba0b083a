"""Subscriptions: backlog, leases, ordering, consumers and redelivery."""
