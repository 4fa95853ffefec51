package unnest.trade;

import java.math.BigDecimal;
import java.math.RoundingMode;

/** Amounts of money in whole cents. */
final class Money {
    private Money() {}

    /** Rounds an amount to cents. */
    static BigDecimal cents(BigDecimal amount) {
        return amount.setScale(2, RoundingMode.HALF_UP);
    }

    /** Returns the price of several shares. */
    static BigDecimal times(BigDecimal price, int quantity) {
        return cents(price.multiply(BigDecimal.valueOf(quantity)));
    }
}
