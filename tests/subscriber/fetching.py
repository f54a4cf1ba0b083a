"""The topic and subscription of the tests of fetching. The broker is a fixture of conftest.py."""

TOPIC = "projects/test-project/topics/orders"
NAME = "projects/test-project/subscriptions/billing"
