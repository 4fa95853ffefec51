package unnest.trade.web;

/** An HTML page. What it is given is text, which it escapes. */
final class Page {
    private final StringBuilder body = new StringBuilder();

    Page(String title) {
        body.append("<!DOCTYPE html>\n<html><head><title>").append(escape(title))
                .append("</title></head>\n<body><h1>").append(escape(title)).append("</h1>\n");
    }

    Page line(String label, Object value) {
        body.append("<p>").append(escape(label)).append(": <b>").append(escape(value.toString())).append("</b></p>\n");
        return this;
    }

    /** Begins a table. Rows follow, then end. */
    Page table(String... headings) {
        body.append("<table>\n");
        return cells("th", (Object[]) headings);
    }

    Page row(Object... values) {
        return cells("td", values);
    }

    Page end() {
        body.append("</table>\n");
        return this;
    }

    private Page cells(String tag, Object... values) {
        body.append("<tr>");
        for (Object value : values) {
            body.append('<').append(tag).append('>').append(escape(value.toString()))
                    .append("</").append(tag).append('>');
        }
        body.append("</tr>\n");
        return this;
    }

    String html() {
        return body + "</body></html>\n";
    }

    static String escape(String text) {
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                .replace("\"", "&quot;").replace("'", "&#39;");
    }
}
