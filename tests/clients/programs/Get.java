import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Gets a URL with Java's own client, with no option but what its environment says. */
class Get {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body());
        System.exit(answer.statusCode() == 200 ? 0 : 1);
    }
}
