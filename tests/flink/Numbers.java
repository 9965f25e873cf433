import java.util.ArrayList;
import java.util.List;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job without classes of its own: what it counts comes back from the task manager. */
class Numbers {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        StreamExecutionEnvironment session =
                StreamExecutionEnvironment.createRemoteEnvironment("127.0.0.1", port);
        List<Long> numbers = new ArrayList<>();
        try (var results = session.fromSequence(1, 24).executeAndCollect("numbers")) {
            results.forEachRemaining(numbers::add);
        }
        System.out.println(numbers.stream().mapToLong(Long::longValue).sum());
    }
}
