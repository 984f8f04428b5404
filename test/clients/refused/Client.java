import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** Calls Health with grpc-java and prints the status. Its environment has the certificates. */
public final class Client {
  private static final MethodDescriptor.Marshaller<String> NOTHING = new MethodDescriptor.Marshaller<>() {
    @Override
    public InputStream stream(String message) {
      return InputStream.nullInputStream();
    }

    @Override
    public String parse(InputStream message) {
      return "";
    }
  };

  public static void main(String[] arguments) throws IOException {
    TlsChannelCredentials.Builder security = TlsChannelCredentials.newBuilder().trustManager(pem("CA"));
    if (!System.getenv("CERTIFICATE").isEmpty()) security.keyManager(pem("CERTIFICATE"), pem("KEY"));
    ManagedChannel channel = Grpc.newChannelBuilder(arguments[0], security.build()).overrideAuthority("localhost").build();
    MethodDescriptor<String, String> health = MethodDescriptor.newBuilder(NOTHING, NOTHING)
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("svc.guest.v1alpha1.GuestAgent/Health")
        .build();
    Status status = Status.OK;
    try {
      ClientCalls.blockingUnaryCall(channel, health, CallOptions.DEFAULT, "");
    } catch (StatusRuntimeException failure) {
      status = failure.getStatus();
    }
    System.out.println(status.getCode().value() + " " + status.getDescription() + " " + status.getCause());
    System.exit(0);
  }

  private static InputStream pem(String name) {
    return new ByteArrayInputStream(System.getenv(name).getBytes(StandardCharsets.UTF_8));
  }
}
