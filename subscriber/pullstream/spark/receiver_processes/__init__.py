"""Receivers outside of the source's process: their loop, their program, their Spark job."""
