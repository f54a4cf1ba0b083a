"""What the tests of fetching fetch from; the broker that has it is a fixture of conftest.py."""

TOPIC = "projects/test-project/topics/orders"
NAME = "projects/test-project/subscriptions/billing"
