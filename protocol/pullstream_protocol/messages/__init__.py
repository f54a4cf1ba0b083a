"""Messages on the wire: .proto files and the Python modules generated from them.

Import the module that holds a message, for example ``from pullstream_protocol.messages import
pubsub_pb2``. Never edit a ``*_pb2`` file: change the .proto file and run ``make protos``.
"""
