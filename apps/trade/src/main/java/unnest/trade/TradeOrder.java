package unnest.trade;

import java.math.BigDecimal;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.EnumType;
import javax.persistence.Enumerated;
import javax.persistence.FetchType;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.Index;
import javax.persistence.JoinColumn;
import javax.persistence.ManyToOne;
import javax.persistence.SequenceGenerator;
import javax.persistence.Table;

/** A completed order. */
@Entity
@Table(name = "orders", indexes = @Index(name = "orders_of_account", columnList = "account"))
public class TradeOrder {
    /** What every order costs. */
    static final BigDecimal FEE = new BigDecimal("24.95");

    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "order_ids")
    @SequenceGenerator(name = "order_ids", sequenceName = "order_ids", allocationSize = 50)
    private long id;

    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    @JoinColumn(name = "account")
    private Account account;

    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    @JoinColumn(name = "symbol")
    private Quote quote;

    @Enumerated(EnumType.STRING)
    @Column(nullable = false, length = 4)
    private OrderType type;

    private int quantity;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal price;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal fee;

    private boolean seeded; // by the population of the database

    protected TradeOrder() {}

    TradeOrder(Account account, Quote quote, OrderType type, int quantity, boolean seeded) {
        this.account = account;
        this.quote = quote;
        this.type = type;
        this.quantity = quantity;
        this.price = quote.price();
        this.fee = FEE;
        this.seeded = seeded;
    }

    /** Returns what the account receives. It is negative if the account pays. */
    BigDecimal cashChange() {
        BigDecimal shares = Money.times(price, quantity);
        return (type == OrderType.BUY ? shares.negate() : shares).subtract(fee);
    }

    public long id() {
        return id;
    }

    public OrderType type() {
        return type;
    }

    public int quantity() {
        return quantity;
    }

    public BigDecimal price() {
        return price;
    }

    public BigDecimal fee() {
        return fee;
    }

    public boolean seeded() {
        return seeded;
    }

    public String symbol() {
        return quote.symbol();
    }
}
