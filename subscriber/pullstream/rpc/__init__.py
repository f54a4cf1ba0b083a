"""Connections to the server and unary calls with retries."""
