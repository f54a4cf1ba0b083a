"""Spark sessions on this machine: Java, sockets and the session builder."""
