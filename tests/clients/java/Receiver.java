import com.google.api.core.ApiFuture;
import com.google.api.core.ApiFutureCallback;
import com.google.api.core.ApiFutures;
import com.google.api.gax.batching.FlowControlSettings;
import com.google.api.gax.core.InstantiatingExecutorProvider;
import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.GrpcTransportChannel;
import com.google.api.gax.rpc.FixedTransportChannelProvider;
import com.google.cloud.pubsub.v1.AckReplyConsumerWithResponse;
import com.google.cloud.pubsub.v1.AckResponse;
import com.google.cloud.pubsub.v1.MessageReceiverWithAckResponse;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.common.util.concurrent.MoreExecutors;
import com.google.gson.Gson;
import com.google.pubsub.v1.ProjectSubscriptionName;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.StreamingPullResponse;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Phaser;

/**
 * Google's Java client as a subscriber that tests/clients/run.py controls. receiver.py in the folder
 * above describes the task, the commands and the lines.
 */
public final class Receiver implements MessageReceiverWithAckResponse {
  /** The program's argument, with the names of its JSON. */
  private static final class Task {
    String endpoint;
    String project;
    String subscription;
    int messages;
    int nack_every;
    String hold;
    String answer;
    boolean admin;
  }

  /** Enough for the callbacks of all keys, which wait for results. The default is 5. */
  private static final int THREADS = 100;

  private static final long BEGIN = System.nanoTime();

  private final Task task;
  private final AckIds ackIds = new AckIds();
  private final Set<Integer> seen = ConcurrentHashMap.newKeySet();
  private final Queue<Runnable> held = new ConcurrentLinkedQueue<>();
  private final CountDownLatch answered = new CountDownLatch(1);
  private final Phaser results = new Phaser(1);

  private Receiver(Task task) {
    this.task = task;
  }

  public static void main(String[] arguments) throws Exception {
    Task task = new Gson().fromJson(arguments[0], Task.class);
    if (task.admin) {
      new RestUpdates(task.endpoint, task.project).run();
    } else {
      new Receiver(task).run();
    }
    System.exit(0);
  }

  private void run() throws Exception {
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(task.endpoint).usePlaintext().intercept(ackIds).build();
    Subscriber subscriber =
        Subscriber.newBuilder(ProjectSubscriptionName.of(task.project, task.subscription), this)
            .setCredentialsProvider(NoCredentialsProvider.create())
            .setExecutorProvider(
                InstantiatingExecutorProvider.newBuilder().setExecutorThreadCount(THREADS).build())
            .setChannelProvider(
                FixedTransportChannelProvider.create(GrpcTransportChannel.create(channel)))
            // With more messages than the limit, the client blocks itself in exactly-once delivery:
            // it waits for a place with the lock that acknowledged messages need to leave theirs.
            // Google's emulator sends more than the limit.
            .setFlowControlSettings(
                FlowControlSettings.newBuilder()
                    .setMaxOutstandingElementCount(2L * task.messages)
                    .setMaxOutstandingRequestBytes(100_000_000L)
                    .build())
            .build();
    subscriber.startAsync().awaitRunning();
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String command; (command = commands.readLine()) != null; ) {
      if (command.equals("answer")) {
        answered.countDown();
        held.forEach(Runnable::run);
      } else {
        subscriber.stopAsync();
      }
    }
    subscriber.awaitTerminated();
    results.arriveAndAwaitAdvance();
  }

  @Override
  public void receiveMessage(PubsubMessage message, AckReplyConsumerWithResponse consumer) {
    int number = Integer.parseInt(message.getData().toStringUtf8());
    tell("delivered", number, ackIds.of(message));
    boolean first = seen.add(number);
    boolean answerIsNack = "nack".equals(task.answer);
    if (task.hold.isEmpty()) {
      boolean nack = first && task.nack_every > 0 && number % task.nack_every == 0;
      await(settle(consumer, number, nack));
    } else if (!first && answerIsNack) {
      consumer.ack();
    } else if (!first) {
      consumer.nack();
    } else if (task.hold.equals("inside")) {
      try {
        answered.await();
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
      await(settle(consumer, number, answerIsNack));
    } else {
      held.add(() -> settle(consumer, number, answerIsNack));
    }
  }

  private ApiFuture<AckResponse> settle(
      AckReplyConsumerWithResponse consumer, int number, boolean nack) {
    String name = nack ? "nack" : "ack";
    tell(name, number);
    results.register();
    ApiFuture<AckResponse> result = nack ? consumer.nack() : consumer.ack();
    ApiFutures.addCallback(
        result,
        new ApiFutureCallback<AckResponse>() {
          @Override
          public void onSuccess(AckResponse response) {
            report(response == AckResponse.SUCCESSFUL ? "SUCCESS" : response.name());
          }

          @Override
          public void onFailure(Throwable error) {
            report(error.getClass().getSimpleName());
          }

          private void report(String outcome) {
            tell(name + "-result", number, outcome);
            results.arriveAndDeregister();
          }
        },
        MoreExecutors.directExecutor());
    return result;
  }

  private static void await(ApiFuture<AckResponse> result) {
    try {
      result.get();
    } catch (Exception reported) {
      // The callback of settle has reported it.
    }
  }

  static synchronized void tell(Object... words) {
    StringBuilder line = new StringBuilder();
    line.append(String.format(Locale.ROOT, "%.3f", (System.nanoTime() - BEGIN) / 1e9));
    for (Object word : words) {
      line.append(' ').append(word);
    }
    System.out.println(line);
    System.out.flush();
  }

  /** Remembers the ack id of each message, because the message does not show it. */
  private static final class AckIds implements ClientInterceptor {
    private final Map<String, String> byMessageId = new ConcurrentHashMap<>();

    String of(PubsubMessage message) {
      return byMessageId.get(message.getMessageId());
    }

    @Override
    public <A, B> ClientCall<A, B> interceptCall(
        MethodDescriptor<A, B> method, CallOptions options, Channel next) {
      return new SimpleForwardingClientCall<A, B>(next.newCall(method, options)) {
        @Override
        public void start(Listener<B> listener, Metadata headers) {
          super.start(
              new SimpleForwardingClientCallListener<B>(listener) {
                @Override
                public void onMessage(B message) {
                  if (message instanceof StreamingPullResponse response) {
                    response
                        .getReceivedMessagesList()
                        .forEach(
                            received ->
                                byMessageId.put(
                                    received.getMessage().getMessageId(), received.getAckId()));
                  }
                  super.onMessage(message);
                }
              },
              headers);
        }
      };
    }
  }
}
