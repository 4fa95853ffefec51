package unnest.trade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.math.BigDecimal;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LedgerTest {
    /** Each damage to the database is found, and by the check for it. */
    @ParameterizedTest
    @CsvSource(delimiter = ';', value = {
        "update Account set cash = cash + 0.01 where name = 'u5'; 1 0 0",
        "update Account set cash = cash + 1 where name = 'u5' or name = 'u6'; 2 0 0",
        "update Holding set quantity = quantity + 1 where account = 'u5'; 0 5 5",
        "update Holding set price = price + 1 where account = 'u5' and symbol = 's25'; 0 0 1",
        "delete from Holding where account = 'u5'; 0 5 0",
        "update Holding set account = 'u6' where account = 'u5' and symbol = 's25'; 0 2 1",
        "update orders set fee = 0 where account = 'u5'; 1 0 0",
    })
    void findsDamage(String damage, String wrong) {
        try (TestDatabase database = new TestDatabase()) {
            database.sql(damage);
            LedgerReport r = database.check();
            assertEquals(wrong, r.wrongAccounts() + " " + r.wrongHoldings() + " " + r.wrongOrders());
            assertFalse(r.balanced());
        }
    }

    @Test
    void reportsOneFigureInALine() {
        BigDecimal two = new BigDecimal("2.00");
        String text = new LedgerReport(1, 2, 3, 4, 5, two, two, two, two, two, 6, 7, 8).text();
        assertEquals("""
                accounts 1
                holdings 2
                seeded 3
                buys 4
                sells 5
                opening 2.00
                cash 2.00
                bought 2.00
                sold 2.00
                fees 2.00
                wrong_accounts 6
                wrong_holdings 7
                wrong_orders 8
                """, text);
    }
}
