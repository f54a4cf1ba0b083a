import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.httpjson.InstantiatingHttpJsonChannelProvider;
import com.google.cloud.pubsub.v1.SubscriptionAdminClient;
import com.google.cloud.pubsub.v1.SubscriptionAdminSettings;
import com.google.cloud.pubsub.v1.TopicAdminClient;
import com.google.cloud.pubsub.v1.TopicAdminSettings;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.FieldMask;
import com.google.protobuf.Timestamp;
import com.google.pubsub.v1.DeadLetterPolicy;
import com.google.pubsub.v1.ExpirationPolicy;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.PushConfig;
import com.google.pubsub.v1.RetryPolicy;
import com.google.pubsub.v1.SeekRequest;
import com.google.pubsub.v1.Snapshot;
import com.google.pubsub.v1.Subscription;
import com.google.pubsub.v1.Topic;
import com.google.pubsub.v1.UpdateSnapshotRequest;
import com.google.pubsub.v1.UpdateSubscriptionRequest;
import com.google.pubsub.v1.UpdateTopicRequest;
import java.util.List;

/** Calls of Google's Java client over HTTP: the updates of each field, and the calls around them. */
final class RestUpdates {
  private interface Call {
    void run();
  }

  private final String project;
  private final InstantiatingHttpJsonChannelProvider transport;
  private int calls;

  RestUpdates(String endpoint, String project) {
    this.project = "projects/" + project;
    this.transport =
        TopicAdminSettings.defaultHttpJsonTransportProviderBuilder()
            .setEndpoint("http://" + endpoint)
            .build();
  }

  void run() throws Exception {
    try (TopicAdminClient topics =
            TopicAdminClient.create(
                TopicAdminSettings.newHttpJsonBuilder()
                    .setTransportChannelProvider(transport)
                    .setCredentialsProvider(NoCredentialsProvider.create())
                    .build());
        SubscriptionAdminClient subscriptions =
            SubscriptionAdminClient.create(
                SubscriptionAdminSettings.newHttpJsonBuilder()
                    .setTransportChannelProvider(transport)
                    .setCredentialsProvider(NoCredentialsProvider.create())
                    .build())) {
      updates(topics, subscriptions);
    }
  }

  private void updates(TopicAdminClient topics, SubscriptionAdminClient subscriptions) {
    String topicName = project + "/topics/rest";
    String deadName = project + "/topics/rest-dead";
    String subscriptionName = project + "/subscriptions/rest";
    String snapshotName = project + "/snapshots/rest";
    Topic topic = Topic.newBuilder().setName(topicName).build();
    call("create topic", () -> topics.createTopic(topic));
    call("create topic", () -> topics.createTopic(deadName));
    call("get topic", () -> topics.getTopic(topicName));
    update(topics, topic.toBuilder().putLabels("team", "blue").build(), "labels");
    update(
        topics,
        topic.toBuilder().setMessageRetentionDuration(seconds(3600)).build(),
        "message_retention_duration");
    call(
        "publish",
        () ->
            topics.publish(
                topicName,
                List.of(
                    PubsubMessage.newBuilder().setData(ByteString.copyFromUtf8("1")).build())));

    Subscription subscription =
        Subscription.newBuilder()
            .setName(subscriptionName)
            .setTopic(topicName)
            .setAckDeadlineSeconds(10)
            .build();
    call("create subscription", () -> subscriptions.createSubscription(subscription));
    Subscription.Builder changed = subscription.toBuilder();
    update(subscriptions, changed.setAckDeadlineSeconds(20), "ack_deadline_seconds");
    update(subscriptions, changed.setRetainAckedMessages(true), "retain_acked_messages");
    update(
        subscriptions,
        changed.setMessageRetentionDuration(seconds(3600)),
        "message_retention_duration");
    update(subscriptions, changed.putLabels("team", "blue"), "labels");
    update(
        subscriptions,
        changed.setExpirationPolicy(ExpirationPolicy.newBuilder().setTtl(seconds(172800))),
        "expiration_policy");
    update(
        subscriptions,
        changed.setRetryPolicy(
            RetryPolicy.newBuilder()
                .setMinimumBackoff(seconds(1))
                .setMaximumBackoff(seconds(60))),
        "retry_policy");
    update(
        subscriptions,
        changed.setDeadLetterPolicy(
            DeadLetterPolicy.newBuilder().setDeadLetterTopic(deadName).setMaxDeliveryAttempts(7)),
        "dead_letter_policy");
    update(
        subscriptions, changed.setEnableExactlyOnceDelivery(true), "enable_exactly_once_delivery");
    update(
        subscriptions,
        changed.setAckDeadlineSeconds(30).putLabels("team", "red"),
        "ack_deadline_seconds",
        "labels");
    call("get subscription", () -> subscriptions.getSubscription(subscriptionName));

    call("create snapshot", () -> subscriptions.createSnapshot(snapshotName, subscriptionName));
    UpdateSnapshotRequest snapshot =
        UpdateSnapshotRequest.newBuilder()
            .setSnapshot(Snapshot.newBuilder().setName(snapshotName).putLabels("team", "blue"))
            .setUpdateMask(FieldMask.newBuilder().addPaths("labels"))
            .build();
    call("update snapshot", () -> subscriptions.updateSnapshot(snapshot));
    call(
        "seek",
        () ->
            subscriptions.seek(
                SeekRequest.newBuilder()
                    .setSubscription(subscriptionName)
                    .setTime(Timestamp.newBuilder().setSeconds(1_000_000_000))
                    .build()));
    call(
        "modify push config",
        () -> subscriptions.modifyPushConfig(subscriptionName, PushConfig.getDefaultInstance()));
    call("delete snapshot", () -> subscriptions.deleteSnapshot(snapshotName));
    call("delete subscription", () -> subscriptions.deleteSubscription(subscriptionName));
    call("delete topic", () -> topics.deleteTopic(topicName));
  }

  private void update(TopicAdminClient topics, Topic topic, String... paths) {
    UpdateTopicRequest request =
        UpdateTopicRequest.newBuilder()
            .setTopic(topic)
            .setUpdateMask(FieldMask.newBuilder().addAllPaths(List.of(paths)))
            .build();
    call("update topic: " + String.join(",", paths), () -> topics.updateTopic(request));
  }

  private void update(
      SubscriptionAdminClient subscriptions, Subscription.Builder changed, String... paths) {
    UpdateSubscriptionRequest request =
        UpdateSubscriptionRequest.newBuilder()
            .setSubscription(changed)
            .setUpdateMask(FieldMask.newBuilder().addAllPaths(List.of(paths)))
            .build();
    call(
        "update subscription: " + String.join(",", paths),
        () -> subscriptions.updateSubscription(request));
  }

  private void call(String name, Call call) {
    String outcome = "SUCCESS";
    try {
      call.run();
    } catch (RuntimeException error) {
      outcome = error.getClass().getSimpleName();
      System.err.println(name + ": " + error);
    }
    Receiver.tell("call", calls++, outcome);
  }

  private static Duration seconds(long seconds) {
    return Duration.newBuilder().setSeconds(seconds).build();
  }
}
