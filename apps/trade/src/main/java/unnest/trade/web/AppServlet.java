package unnest.trade.web;

import java.io.IOException;
import java.util.List;
import javax.ejb.EJB;
import javax.servlet.annotation.WebServlet;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import unnest.trade.Account;
import unnest.trade.Position;
import unnest.trade.Quote;
import unnest.trade.Refused;
import unnest.trade.Summary;
import unnest.trade.TradeOrder;
import unnest.trade.Trading;

/** The pages of customers. The parameter action chooses one. What changes data needs POST. */
@WebServlet("/app")
public class AppServlet extends HttpServlet {
    private static final String CUSTOMER = "customer"; // attribute of the session

    @EJB
    private transient Trading trading;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        answer(request, response, false);
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
        answer(request, response, true);
    }

    private void answer(HttpServletRequest request, HttpServletResponse response, boolean post) throws IOException {
        request.setCharacterEncoding("UTF-8");
        response.setContentType("text/html;charset=UTF-8");
        Page page;
        try {
            page = post ? change(request) : show(request);
        } catch (Refused e) {
            response.setStatus(HttpServletResponse.SC_CONFLICT);
            page = new Page("Refused").line("reason", e.getMessage());
        }
        response.getWriter().write(page.html());
    }

    private Page show(HttpServletRequest request) {
        String customer = customer(request);
        return switch (parameter(request, "action")) {
            case "home" -> home(customer);
            case "account" -> account("Account", trading.account(customer));
            case "portfolio" -> portfolio(customer);
            case "quotes" -> quotes("Quotes", trading.quotes(List.of(parameter(request, "symbols").split(","))));
            default -> throw new Refused("there is no such page");
        };
    }

    private Page change(HttpServletRequest request) {
        return switch (parameter(request, "action")) {
            case "register" -> enter(request, "Registered",
                    trading.register(parameter(request, "name"), parameter(request, "password"), parameter(request, "email")));
            case "login" -> enter(request, "Welcome", trading.login(parameter(request, "name"), parameter(request, "password")));
            case "logout" -> leave(request);
            case "update" -> account("Updated", trading.moveTo(customer(request), parameter(request, "email")));
            case "buy" -> order("Bought",
                    trading.buy(customer(request), parameter(request, "symbol"), (int) number(request, "quantity")));
            case "sell" -> order("Sold", trading.sell(customer(request), number(request, "holding")));
            default -> throw new Refused("there is no such action");
        };
    }

    private Page enter(HttpServletRequest request, String title, Account account) {
        request.getSession().setAttribute(CUSTOMER, account.name());
        request.changeSessionId();
        return account(title, account);
    }

    private Page leave(HttpServletRequest request) {
        String customer = customer(request);
        request.getSession().invalidate();
        return new Page("Goodbye").line("customer", customer);
    }

    private Page home(String customer) {
        Summary s = trading.summary(customer);
        return quotes("Home", trading.market())
                .line("customer", s.name()).line("opening", s.opening()).line("cash", s.cash())
                .line("holdings", s.holdings()).line("value", s.value()).line("gain", s.gain());
    }

    private static Page account(String title, Account a) {
        return new Page(title).line("customer", a.name()).line("email", a.email()).line("cash", a.cash()).line("logins", a.logins());
    }

    private Page portfolio(String customer) {
        Page page = new Page("Portfolio").line("customer", customer).table("holding", "symbol", "quantity", "bought", "now", "gain");
        for (Position p : trading.portfolio(customer)) {
            page.row(p.holding(), p.symbol(), p.quantity(), p.bought(), p.now(), p.gain());
        }
        return page.end();
    }

    private static Page quotes(String title, List<Quote> quotes) {
        Page page = new Page(title).table("symbol", "company", "price", "low", "high", "volume");
        for (Quote q : quotes) {
            page.row(q.symbol(), q.company(), q.price(), q.low(), q.high(), q.volume());
        }
        return page.end();
    }

    private static Page order(String title, TradeOrder o) {
        return new Page(title).line("order", o.id()).line("symbol", o.symbol()).line("quantity", o.quantity())
                .line("price", o.price()).line("fee", o.fee());
    }

    private static String customer(HttpServletRequest request) {
        var session = request.getSession(false);
        Object customer = session == null ? null : session.getAttribute(CUSTOMER);
        if (customer == null) {
            throw new Refused("log in first");
        }
        return customer.toString();
    }

    private static String parameter(HttpServletRequest request, String name) {
        String value = request.getParameter(name);
        if (value == null) {
            throw new Refused("parameter " + name + " is missing");
        }
        return value;
    }

    private static long number(HttpServletRequest request, String name) {
        try {
            return Long.parseLong(parameter(request, name));
        } catch (NumberFormatException e) {
            throw new Refused("parameter " + name + " is not a number");
        }
    }
}
