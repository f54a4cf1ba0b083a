"""Code that both sides of the wire share: messages, RPCs, resource names, errors and time.

This package does not import the subscriber or the emulator. Both import it.
"""
