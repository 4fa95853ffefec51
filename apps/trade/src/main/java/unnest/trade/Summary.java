package unnest.trade;

import java.math.BigDecimal;

/** An account at a glance. */
public record Summary(String name, BigDecimal opening, BigDecimal cash, long holdings, BigDecimal value) {
    public BigDecimal gain() {
        return cash.add(value).subtract(opening);
    }
}
