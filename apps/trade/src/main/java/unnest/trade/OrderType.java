package unnest.trade;

/** What an order does. */
public enum OrderType {
    BUY, SELL
}
