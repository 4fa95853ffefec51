package unnest.trade.web;

import java.io.IOException;
import javax.ejb.EJB;
import javax.servlet.annotation.WebServlet;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import unnest.trade.Ledger;

/** The state of the database, as text. A run ends with it. */
@WebServlet("/ledger")
public class LedgerServlet extends HttpServlet {
    @EJB
    private transient Ledger ledger;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType("text/plain;charset=UTF-8");
        response.getWriter().write(ledger.check().text());
    }
}
