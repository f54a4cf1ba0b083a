"""The gRPC face of the engine: decode, call the engine, encode."""
