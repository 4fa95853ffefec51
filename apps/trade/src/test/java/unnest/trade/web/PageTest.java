package unnest.trade.web;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class PageTest {
    @Test
    void escapesWhatItIsGiven() {
        String html = new Page("A<B").line("it's", "\"x\" & y").table("h").row(1).end().html();
        assertEquals("""
                <!DOCTYPE html>
                <html><head><title>A&lt;B</title></head>
                <body><h1>A&lt;B</h1>
                <p>it&#39;s: <b>&quot;x&quot; &amp; y</b></p>
                <table>
                <tr><th>h</th></tr>
                <tr><td>1</td></tr>
                </table>
                </body></html>
                """, html);
    }
}
