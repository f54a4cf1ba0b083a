"""One TCP port for gRPC and HTTP: protocol detection, TLS and the relay to gRPC."""
