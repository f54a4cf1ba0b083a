"""Settings of topics and subscriptions: validation, defaults, updates and filters."""
