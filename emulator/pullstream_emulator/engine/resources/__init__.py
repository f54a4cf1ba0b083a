"""Topics, subscriptions and snapshots by name, and the requests that change them."""
