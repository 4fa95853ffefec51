package unnest.trade;

import java.math.BigDecimal;
import javax.ejb.Stateless;
import javax.persistence.EntityManager;
import javax.persistence.PersistenceContext;

/**
 * Checks in the database that nothing was lost or made: each account's cash is its opening balance with
 * its orders, and its holdings are what it has bought and not sold, at the prices of these orders.
 */
@Stateless
public class Ledger {
    private static final String WRONG_ACCOUNTS = """
            select count(*) from Account a where a.cash <> a.opening + coalesce((
                select sum(case when o.type = 'BUY' then -o.price * o.quantity else o.price * o.quantity end - o.fee)
                from orders o where o.account = a.name), 0)""";

    private static final String WRONG_HOLDINGS = """
            select count(*) from (
                select account, symbol from (
                    select account, symbol, case when type = 'BUY' then quantity else -quantity end as quantity from orders
                    union all select account, symbol, -quantity from Holding) shares
                group by account, symbol having sum(quantity) <> 0) wrong""";

    private static final String WRONG_ORDERS = """
            select count(*) from Holding h left join orders o on o.id = h.bought
            where o.id is null or o.type <> 'BUY' or o.account <> h.account or o.symbol <> h.symbol
                or o.quantity <> h.quantity or o.price <> h.price""";

    @PersistenceContext
    EntityManager em;

    public LedgerReport check() {
        return new LedgerReport(
                count("select count(*) from Account"),
                count("select count(*) from Holding"),
                count("select count(*) from orders where seeded"),
                count("select count(*) from orders where type = 'BUY' and not seeded"),
                count("select count(*) from orders where type = 'SELL'"),
                sum("select sum(opening) from Account"),
                sum("select sum(cash) from Account"),
                sum("select sum(price * quantity) from orders where type = 'BUY'"),
                sum("select sum(price * quantity) from orders where type = 'SELL'"),
                sum("select sum(fee) from orders"),
                count(WRONG_ACCOUNTS), count(WRONG_HOLDINGS), count(WRONG_ORDERS));
    }

    private long count(String query) {
        return ((Number) em.createNativeQuery(query).getSingleResult()).longValue();
    }

    private BigDecimal sum(String query) {
        BigDecimal sum = (BigDecimal) em.createNativeQuery(query).getSingleResult();
        return Money.cents(sum == null ? BigDecimal.ZERO : sum);
    }
}
