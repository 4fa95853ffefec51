package unnest.trade;

import java.math.BigDecimal;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.FetchType;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.Index;
import javax.persistence.JoinColumn;
import javax.persistence.ManyToOne;
import javax.persistence.OneToOne;
import javax.persistence.SequenceGenerator;
import javax.persistence.Table;

/** Shares that an account owns, from one order. */
@Entity
@Table(indexes = @Index(name = "holdings_of_account", columnList = "account"))
public class Holding {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "holding_ids")
    @SequenceGenerator(name = "holding_ids", sequenceName = "holding_ids", allocationSize = 50)
    private long id;

    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    @JoinColumn(name = "account")
    private Account account;

    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    @JoinColumn(name = "symbol")
    private Quote quote;

    /** The same column, to be read without a lock on the quote. */
    @Column(name = "symbol", insertable = false, updatable = false)
    private String symbol;

    @OneToOne(fetch = FetchType.LAZY, optional = false)
    @JoinColumn(name = "bought")
    private TradeOrder bought;

    private int quantity;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal price;

    protected Holding() {}

    Holding(Account account, Quote quote, TradeOrder bought) {
        this.account = account;
        this.quote = quote;
        this.symbol = quote.symbol();
        this.bought = bought;
        this.quantity = bought.quantity();
        this.price = bought.price();
    }

    boolean isOf(Account owner) {
        return account.name().equals(owner.name());
    }

    public long id() {
        return id;
    }

    public int quantity() {
        return quantity;
    }

    public BigDecimal price() {
        return price;
    }

    public String symbol() {
        return symbol;
    }
}
