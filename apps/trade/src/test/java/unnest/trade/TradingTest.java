package unnest.trade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class TradingTest {
    private TestDatabase database;

    @BeforeEach
    void open() {
        database = new TestDatabase();
    }

    @AfterEach
    void close() {
        database.close();
    }

    @Test
    void aNewDatabaseIsAlwaysTheSame() {
        LedgerReport report = database.check();
        assertTrue(report.balanced(), report.text());
        assertEquals(Population.USERS, report.accounts());
        assertEquals(Population.USERS * Population.HOLDINGS, report.holdings());
        assertEquals(report.holdings(), report.seeded());
        assertEquals(0, report.buys() + report.sells());
        try (TestDatabase other = new TestDatabase()) {
            assertEquals(report.text(), other.check().text());
        }
    }

    @Test
    void aBuyCostsItsPriceAndTheFee() {
        BigDecimal before = cash("u1");
        BigDecimal price = database.trade(t -> t.quotes(List.of("s7"))).get(0).price();
        TradeOrder order = database.trade(t -> t.buy("u1", "s7", 10));
        assertEquals(price, order.price());
        assertEquals(before.subtract(price.multiply(BigDecimal.TEN)).subtract(TradeOrder.FEE), cash("u1"));
        List<Position> positions = database.trade(t -> t.portfolio("u1"));
        assertEquals(Population.HOLDINGS + 1, positions.size());
        assertEquals("s7", positions.get(positions.size() - 1).symbol());
        assertEquals(10, database.trade(t -> t.quotes(List.of("s7"))).get(0).volume());
        assertBalanced(1, 0);
    }

    @Test
    void aSellPaysThePriceOfToday() {
        Position position = database.trade(t -> t.portfolio("u2")).get(0);
        BigDecimal before = cash("u2");
        TradeOrder order = database.trade(t -> t.sell("u2", position.holding()));
        assertEquals(position.now(), order.price());
        assertEquals(before.add(Money.times(position.now(), position.quantity())).subtract(TradeOrder.FEE), cash("u2"));
        assertEquals(Population.HOLDINGS - 1, database.trade(t -> t.portfolio("u2")).size());
        assertBalanced(0, 1);
        assertThrows(Refused.class, () -> database.trade(t -> t.sell("u2", position.holding())));
        assertBalanced(0, 1);
    }

    @Test
    void whatIsRefusedChangesNothing() {
        String before = database.check().text();
        long foreign = database.trade(t -> t.portfolio("u3")).get(0).holding();
        List<Callable<Object>> refused = List.of(
                () -> database.trade(t -> t.buy("u1", "s1", 10_000_000)), // more than the account has
                () -> database.trade(t -> t.buy("u1", "s1", 0)),
                () -> database.trade(t -> t.buy("u1", "unknown", 1)),
                () -> database.trade(t -> t.buy("nobody", "s1", 1)),
                () -> database.trade(t -> t.sell("u1", foreign)),
                () -> database.trade(t -> t.login("u1", "wrong")),
                () -> database.trade(t -> t.login("nobody", "secret")),
                () -> database.trade(t -> t.register("u1", "secret", "u1@example.com")),
                () -> database.trade(t -> t.account("nobody")));
        for (Callable<Object> each : refused) {
            assertThrows(Refused.class, each::call);
        }
        assertEquals(before, database.check().text());
    }

    @Test
    void customersRegisterLogInAndMove() {
        database.trade(t -> t.register("new", "secret", "a@example.com"));
        database.trade(t -> t.login("new", "secret"));
        database.trade(t -> t.moveTo("new", "b@example.com"));
        Account account = database.trade(t -> t.account("new"));
        assertEquals("b@example.com", account.email());
        assertEquals(1, account.logins());
        Summary summary = database.trade(t -> t.summary("new"));
        assertEquals(0, summary.holdings());
        assertEquals(new BigDecimal("0.00"), summary.gain());
        assertBalanced(0, 0);
    }

    /** Customers trade the same few shares at the same time. */
    @Test
    void noTradeIsLostAmongThreads() throws Exception {
        int customers = 6, rounds = 20;
        ExecutorService threads = Executors.newFixedThreadPool(customers);
        try {
            List<Callable<Void>> work = IntStream.range(0, customers).<Callable<Void>>mapToObj(i -> () -> {
                String name = "u" + i;
                for (int round = 0; round < rounds; round++) {
                    String symbol = "s" + round % 2;
                    database.trade(t -> t.buy(name, symbol, 3));
                    long oldest = database.trade(t -> t.portfolio(name)).get(0).holding();
                    database.trade(t -> t.sell(name, oldest));
                }
                return null;
            }).toList();
            for (Future<Void> each : threads.invokeAll(work)) {
                each.get();
            }
        } finally {
            threads.shutdownNow();
        }
        assertBalanced(customers * rounds, customers * rounds);
        long volume = database.trade(Trading::market).stream().mapToLong(Quote::volume).sum();
        assertTrue(volume >= 3L * customers * rounds, "volume " + volume);
    }

    private BigDecimal cash(String name) {
        return database.trade(t -> t.account(name)).cash();
    }

    private void assertBalanced(long buys, long sells) {
        LedgerReport report = database.check();
        assertTrue(report.balanced(), report.text());
        assertEquals(buys, report.buys());
        assertEquals(sells, report.sells());
    }
}
