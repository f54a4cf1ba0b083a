"""What both sides of the wire agree on: messages, RPCs, resource names, errors and time.

Nothing here knows the subscriber or the emulator; both are built from it.
"""
