package unnest.trade;

import java.math.BigDecimal;

/** A line of a portfolio: a holding, what it cost, and what a share costs now. */
public record Position(long holding, String symbol, int quantity, BigDecimal bought, BigDecimal now) {
    public BigDecimal gain() {
        return Money.times(now.subtract(bought), quantity);
    }
}
