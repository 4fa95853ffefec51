package unnest.trade;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * Digests of passwords. The customers are generated and their passwords known, so one fast digest is
 * enough; a slow one would be most of what a login measures.
 */
final class Passwords {
    private Passwords() {}

    static String digest(String name, String password) {
        try {
            byte[] text = (name + ":" + password).getBytes(StandardCharsets.UTF_8);
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has SHA-256
        }
    }
}
