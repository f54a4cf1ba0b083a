"""The fixture that users get from the installed package, here from the source tree."""

from emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
