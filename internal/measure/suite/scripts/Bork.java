import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.crypto.Cipher;
import javax.crypto.CipherOutputStream;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.PBEKeySpec;
import javax.crypto.spec.SecretKeySpec;

public class Bork {
    public static void main(String[] args) throws Exception {
        PBEKeySpec password = new PBEKeySpec(args[1].toCharArray(), new byte[16], 4096, 256);
        byte[] key = SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(password).getEncoded();
        Cipher cipher = Cipher.getInstance("AES/CBC/PKCS5Padding");
        cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(key, "AES"), new IvParameterSpec(new byte[16]));
        try (InputStream in = Files.newInputStream(Path.of(args[0]));
             OutputStream out = new CipherOutputStream(Files.newOutputStream(Path.of(args[0] + ".bork")), cipher)) {
            in.transferTo(out);
        }
    }
}
