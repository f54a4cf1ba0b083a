"""gRPC services over the engine: decode requests, call the engine, encode responses."""
