"""google.pubsub.v1 as JSON over HTTP/1.1, on the same port as gRPC: docs/rest.md."""
