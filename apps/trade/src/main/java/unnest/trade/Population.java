package unnest.trade;

import java.math.BigDecimal;
import javax.annotation.PostConstruct;
import javax.ejb.Singleton;
import javax.ejb.Startup;
import javax.persistence.EntityManager;
import javax.persistence.PersistenceContext;

/**
 * Fills a new database, always with the same content: customers u0, u1, ... with holdings, and quotes
 * s0, s1, .... The server has not started before it is full.
 */
@Startup
@Singleton
public class Population {
    static final int USERS = 200;
    static final int QUOTES = 400;
    static final int HOLDINGS = 5; // of a customer

    @PersistenceContext
    EntityManager em;

    @PostConstruct
    void fill() {
        Quote[] quotes = new Quote[QUOTES];
        for (int i = 0; i < QUOTES; i++) {
            quotes[i] = new Quote("s" + i, "Company " + i + " Incorporated", BigDecimal.valueOf(1000 + i * 37L, 2));
            em.persist(quotes[i]);
        }
        for (int i = 0; i < USERS; i++) {
            Account account = new Account("u" + i, "secret", "u" + i + "@example.com", Trading.OPENING);
            em.persist(account);
            for (int j = 0; j < HOLDINGS; j++) {
                hold(account, quotes[(i * HOLDINGS + j) % QUOTES]);
            }
        }
    }

    private void hold(Account account, Quote quote) {
        TradeOrder order = new TradeOrder(account, quote, OrderType.BUY, 100, true);
        account.settle(order);
        em.persist(order);
        em.persist(new Holding(account, quote, order));
    }
}
