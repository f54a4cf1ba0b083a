"""Settings and messages under their names in the official client's `pubsub_v1.types`.

The messages are plain protobuf classes. The official client wraps its messages; docs/migration.md
describes the differences.
"""

from google.protobuf import duration_pb2, empty_pb2, field_mask_pb2, timestamp_pb2

from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schemas

from . import flow_control
from .publisher import settings

FlowControl = flow_control.FlowControl

BatchSettings = settings.BatchSettings
LimitExceededBehavior = settings.LimitExceededBehavior
PublishFlowControl = settings.PublishFlowControl
PublisherOptions = settings.PublisherOptions

Duration = duration_pb2.Duration
Empty = empty_pb2.Empty
FieldMask = field_mask_pb2.FieldMask
Timestamp = timestamp_pb2.Timestamp

# From the Feeds service, which the official client does not have.
AppendResponse = feeds.AppendResponse
Cursor = feeds.Cursor
Feed = feeds.Feed
FeedConfig = feeds.FeedConfig
Position = feeds.Position
Router = feeds.Router

Binding = iam.Binding
GetIamPolicyRequest = iam.GetIamPolicyRequest
Policy = iam.Policy
SetIamPolicyRequest = iam.SetIamPolicyRequest
TestIamPermissionsRequest = iam.TestIamPermissionsRequest
TestIamPermissionsResponse = iam.TestIamPermissionsResponse

CommitSchemaRequest = schemas.CommitSchemaRequest
CompiledProtoSchema = schemas.CompiledProtoSchema
CreateSchemaRequest = schemas.CreateSchemaRequest
DeleteSchemaRequest = schemas.DeleteSchemaRequest
DeleteSchemaRevisionRequest = schemas.DeleteSchemaRevisionRequest
Encoding = schemas.Encoding
GetSchemaRequest = schemas.GetSchemaRequest
ListSchemaRevisionsRequest = schemas.ListSchemaRevisionsRequest
ListSchemaRevisionsResponse = schemas.ListSchemaRevisionsResponse
ListSchemasRequest = schemas.ListSchemasRequest
ListSchemasResponse = schemas.ListSchemasResponse
RollbackSchemaRequest = schemas.RollbackSchemaRequest
Schema = schemas.Schema
SchemaView = schemas.SchemaView
ValidateMessageRequest = schemas.ValidateMessageRequest
ValidateMessageResponse = schemas.ValidateMessageResponse
ValidateSchemaRequest = schemas.ValidateSchemaRequest
ValidateSchemaResponse = schemas.ValidateSchemaResponse

AIInference = pubsub.AIInference
AcknowledgeRequest = pubsub.AcknowledgeRequest
BigQueryConfig = pubsub.BigQueryConfig
BigtableConfig = pubsub.BigtableConfig
CloudStorageConfig = pubsub.CloudStorageConfig
Compression = pubsub.Compression
CreateSnapshotRequest = pubsub.CreateSnapshotRequest
DeadLetterPolicy = pubsub.DeadLetterPolicy
DeleteSnapshotRequest = pubsub.DeleteSnapshotRequest
DeleteSubscriptionRequest = pubsub.DeleteSubscriptionRequest
DeleteTopicRequest = pubsub.DeleteTopicRequest
DetachSubscriptionRequest = pubsub.DetachSubscriptionRequest
DetachSubscriptionResponse = pubsub.DetachSubscriptionResponse
ExpirationPolicy = pubsub.ExpirationPolicy
GetSnapshotRequest = pubsub.GetSnapshotRequest
GetSubscriptionRequest = pubsub.GetSubscriptionRequest
GetTopicRequest = pubsub.GetTopicRequest
IngestionDataSourceSettings = pubsub.IngestionDataSourceSettings
IngestionFailureEvent = pubsub.IngestionFailureEvent
JavaScriptUDF = pubsub.JavaScriptUDF
ListSnapshotsRequest = pubsub.ListSnapshotsRequest
ListSnapshotsResponse = pubsub.ListSnapshotsResponse
ListSubscriptionsRequest = pubsub.ListSubscriptionsRequest
ListSubscriptionsResponse = pubsub.ListSubscriptionsResponse
ListTopicSnapshotsRequest = pubsub.ListTopicSnapshotsRequest
ListTopicSnapshotsResponse = pubsub.ListTopicSnapshotsResponse
ListTopicSubscriptionsRequest = pubsub.ListTopicSubscriptionsRequest
ListTopicSubscriptionsResponse = pubsub.ListTopicSubscriptionsResponse
ListTopicsRequest = pubsub.ListTopicsRequest
ListTopicsResponse = pubsub.ListTopicsResponse
MessageStoragePolicy = pubsub.MessageStoragePolicy
MessageTransform = pubsub.MessageTransform
ModifyAckDeadlineRequest = pubsub.ModifyAckDeadlineRequest
ModifyPushConfigRequest = pubsub.ModifyPushConfigRequest
PlatformLogsSettings = pubsub.PlatformLogsSettings
PublishRequest = pubsub.PublishRequest
PublishResponse = pubsub.PublishResponse
PubsubClientTelemetry = pubsub.PubsubClientTelemetry
PubsubMessage = pubsub.PubsubMessage
PullRequest = pubsub.PullRequest
PullResponse = pubsub.PullResponse
PushConfig = pubsub.PushConfig
ReceivedMessage = pubsub.ReceivedMessage
RetryPolicy = pubsub.RetryPolicy
SchemaSettings = pubsub.SchemaSettings
SeekRequest = pubsub.SeekRequest
SeekResponse = pubsub.SeekResponse
Snapshot = pubsub.Snapshot
StreamingPullRequest = pubsub.StreamingPullRequest
StreamingPullResponse = pubsub.StreamingPullResponse
Subscription = pubsub.Subscription
Topic = pubsub.Topic
UpdateSnapshotRequest = pubsub.UpdateSnapshotRequest
UpdateSubscriptionRequest = pubsub.UpdateSubscriptionRequest
UpdateTopicRequest = pubsub.UpdateTopicRequest
