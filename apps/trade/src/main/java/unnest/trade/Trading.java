package unnest.trade;

import java.math.BigDecimal;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import javax.ejb.Stateless;
import javax.persistence.EntityManager;
import javax.persistence.LockModeType;
import javax.persistence.PersistenceContext;

/**
 * What customers can do. Each call is one transaction. A buy and a sell lock the account before the
 * quote, so that two of them cannot wait for each other.
 */
@Stateless
public class Trading {
    static final BigDecimal OPENING = new BigDecimal("1000000.00");

    @PersistenceContext
    EntityManager em;

    public Account register(String name, String password, String email) {
        if (name.isBlank() || em.find(Account.class, name) != null) {
            throw new Refused("the name " + name + " is taken");
        }
        Account account = new Account(name, password, email, OPENING);
        em.persist(account);
        return account;
    }

    public Account login(String name, String password) {
        Account account = em.find(Account.class, name, LockModeType.PESSIMISTIC_WRITE);
        if (account == null) {
            throw new Refused("wrong name or password");
        }
        account.login(password);
        return account;
    }

    public Account account(String name) {
        return found(em.find(Account.class, name), "account " + name);
    }

    public Account moveTo(String name, String email) {
        Account account = locked(name);
        account.moveTo(email);
        return account;
    }

    /** Returns the quotes of the symbols that exist. */
    public List<Quote> quotes(List<String> symbols) {
        return em.createQuery("select q from Quote q where q.symbol in :symbols order by q.symbol", Quote.class)
                .setParameter("symbols", symbols)
                .getResultList();
    }

    /** Returns the quotes that were traded most. */
    public List<Quote> market() {
        return em.createQuery("select q from Quote q order by q.volume desc, q.symbol", Quote.class)
                .setMaxResults(5)
                .getResultList();
    }

    /** Returns the holdings of an account, the oldest first. */
    public List<Position> portfolio(String name) {
        return em.createQuery(
                        "select new unnest.trade.Position(h.id, q.symbol, h.quantity, h.price, q.price)"
                                + " from Holding h join h.quote q where h.account.name = :name order by h.id",
                        Position.class)
                .setParameter("name", name)
                .getResultList();
    }

    public Summary summary(String name) {
        Account account = account(name);
        List<Position> positions = portfolio(name);
        BigDecimal value = positions.stream()
                .map(p -> Money.times(p.now(), p.quantity()))
                .reduce(Money.cents(BigDecimal.ZERO), BigDecimal::add);
        return new Summary(name, account.opening(), account.cash(), positions.size(), value);
    }

    public TradeOrder buy(String name, String symbol, int quantity) {
        if (quantity < 1) {
            throw new Refused("quantity " + quantity + " is not positive");
        }
        Account account = locked(name);
        Quote quote = found(em.find(Quote.class, symbol, LockModeType.PESSIMISTIC_WRITE), "quote " + symbol);
        TradeOrder order = settle(account, quote, OrderType.BUY, quantity);
        em.persist(new Holding(account, quote, order));
        return order;
    }

    public TradeOrder sell(String name, long id) {
        Account account = locked(name);
        Holding holding = em.find(Holding.class, id);
        if (holding == null || !holding.isOf(account)) {
            throw new Refused(name + " has no holding " + id);
        }
        Quote quote = em.find(Quote.class, holding.symbol(), LockModeType.PESSIMISTIC_WRITE);
        TradeOrder order = settle(account, quote, OrderType.SELL, holding.quantity());
        em.remove(holding);
        return order;
    }

    private TradeOrder settle(Account account, Quote quote, OrderType type, int quantity) {
        TradeOrder order = new TradeOrder(account, quote, type, quantity, false);
        account.settle(order);
        em.persist(order);
        quote.trade(quantity, factor());
        return order;
    }

    /** Returns by what a trade multiplies the price, 0.95 to 1.05. */
    private static BigDecimal factor() {
        return BigDecimal.valueOf(ThreadLocalRandom.current().nextInt(950, 1051), 3);
    }

    private Account locked(String name) {
        return found(em.find(Account.class, name, LockModeType.PESSIMISTIC_WRITE), "account " + name);
    }

    private static <T> T found(T entity, String what) {
        if (entity == null) {
            throw new Refused(what + " does not exist");
        }
        return entity;
    }
}
