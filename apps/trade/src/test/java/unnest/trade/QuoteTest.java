package unnest.trade;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.math.BigDecimal;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class QuoteTest {
    @ParameterizedTest
    @CsvSource({
        "10.00, 1.050, 10.50, 10.00, 10.50",
        "10.00, 0.950, 9.50, 9.50, 10.00",
        "1.00, 0.950, 1.00, 1.00, 1.00",
        "399.00, 1.050, 400.00, 399.00, 400.00",
        "3.33, 1.001, 3.33, 3.33, 3.33",
    })
    void pricesStayWithinLimitsAndInCents(String price, String factor, String now, String low, String high) {
        Quote quote = new Quote("s", "Company", new BigDecimal(price));
        quote.trade(5, new BigDecimal(factor));
        assertEquals(now + " " + low + " " + high + " 5", quote.price() + " " + quote.low() + " " + quote.high() + " " + quote.volume());
    }
}
