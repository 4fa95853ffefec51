package unnest.trade;

import java.math.BigDecimal;

/**
 * The state of the database. The buys leave out the seeded orders; the sums are over all orders. The wrong
 * ones are those that contradict the orders.
 */
public record LedgerReport(
        long accounts, long holdings, long seeded, long buys, long sells,
        BigDecimal opening, BigDecimal cash, BigDecimal bought, BigDecimal sold, BigDecimal fees,
        long wrongAccounts, long wrongHoldings, long wrongOrders) {

    /** Returns whether nothing was lost or made. */
    public boolean balanced() {
        return wrongAccounts == 0 && wrongHoldings == 0 && wrongOrders == 0
                && opening.subtract(bought).add(sold).subtract(fees).compareTo(cash) == 0;
    }

    /** Returns one line for each figure: its name, a space, the figure. */
    public String text() {
        return """
                accounts %d
                holdings %d
                seeded %d
                buys %d
                sells %d
                opening %s
                cash %s
                bought %s
                sold %s
                fees %s
                wrong_accounts %d
                wrong_holdings %d
                wrong_orders %d
                """.formatted(accounts, holdings, seeded, buys, sells, opening.toPlainString(), cash.toPlainString(),
                bought.toPlainString(), sold.toPlainString(), fees.toPlainString(), wrongAccounts, wrongHoldings, wrongOrders);
    }
}
