import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import org.apache.beam.runners.direct.DirectOptions;
import org.apache.beam.runners.direct.DirectRunner;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.gcp.auth.NoopCredentialFactory;
import org.apache.beam.sdk.extensions.gcp.options.GcpOptions;
import org.apache.beam.sdk.io.gcp.pubsub.PubsubIO;
import org.apache.beam.sdk.io.gcp.pubsub.PubsubMessage;
import org.apache.beam.sdk.io.gcp.pubsub.PubsubOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;

/**
 * A pipeline of Apache Beam that reads a subscription, as tests/clients/run.py asks. It takes the
 * task of receiver.py in the folder above, prints a "delivered" line for each message, and ends with
 * its input. Beam acknowledges by itself.
 */
public final class Reader {
  private static final long BEGIN = System.nanoTime();

  private Reader() {}

  /** Prints a line for each message. */
  static final class Print extends DoFn<PubsubMessage, Void> {
    @ProcessElement
    public void process(@Element PubsubMessage message) {
      double seconds = (System.nanoTime() - BEGIN) / 1e9;
      String number = new String(message.getPayload(), StandardCharsets.UTF_8);
      System.out.println(String.format(Locale.ROOT, "%.6f delivered %s", seconds, number));
    }
  }

  public static void main(String[] arguments) throws Exception {
    JsonObject task = JsonParser.parseString(arguments[0]).getAsJsonObject();
    String project = task.get("project").getAsString();
    PubsubOptions options = PipelineOptionsFactory.create().as(PubsubOptions.class);
    options.setRunner(DirectRunner.class);
    options.as(DirectOptions.class).setBlockOnRun(false);
    options.setPubsubRootUrl("http://" + task.get("endpoint").getAsString());
    options.as(GcpOptions.class).setProject(project);
    options.as(GcpOptions.class).setCredentialFactoryClass(NoopCredentialFactory.class);
    String subscription = "projects/" + project + "/subscriptions/";
    subscription += task.get("subscription").getAsString();
    Pipeline pipeline = Pipeline.create(options);
    pipeline
        .apply(PubsubIO.readMessages().fromSubscription(subscription))
        .apply(ParDo.of(new Print()));
    pipeline.run();
    while (System.in.read() != -1) {}
    // Beam's threads do not end by themselves.
    Runtime.getRuntime().halt(0);
  }
}
