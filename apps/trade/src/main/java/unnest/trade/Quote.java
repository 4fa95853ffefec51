package unnest.trade;

import java.math.BigDecimal;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.Id;

/** The shares of a company, with their price. */
@Entity
public class Quote {
    private static final BigDecimal LEAST = new BigDecimal("1.00");
    private static final BigDecimal GREATEST = new BigDecimal("400.00");

    @Id
    @Column(length = 20)
    private String symbol;

    @Column(nullable = false, length = 80)
    private String company;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal price;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal low;

    @Column(nullable = false, precision = 9, scale = 2)
    private BigDecimal high;

    private long volume;

    protected Quote() {}

    public Quote(String symbol, String company, BigDecimal price) {
        this.symbol = symbol;
        this.company = company;
        this.price = Money.cents(price);
        this.low = this.price;
        this.high = this.price;
    }

    /** Counts traded shares and multiplies the price by a factor, within limits. */
    void trade(int quantity, BigDecimal factor) {
        volume += quantity;
        price = Money.cents(price.multiply(factor)).max(LEAST).min(GREATEST);
        low = low.min(price);
        high = high.max(price);
    }

    public String symbol() {
        return symbol;
    }

    public String company() {
        return company;
    }

    public BigDecimal price() {
        return price;
    }

    public BigDecimal low() {
        return low;
    }

    public BigDecimal high() {
        return high;
    }

    public long volume() {
        return volume;
    }
}
