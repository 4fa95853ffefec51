package unnest.trade;

import java.math.BigDecimal;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.Id;

/** A customer. The opening balance never changes, so that the orders explain the cash. */
@Entity
public class Account {
    @Id
    @Column(length = 40)
    private String name;

    @Column(nullable = false, length = 64)
    private String password; // its digest

    @Column(nullable = false, length = 80)
    private String email;

    @Column(nullable = false, precision = 19, scale = 2)
    private BigDecimal opening;

    @Column(nullable = false, precision = 19, scale = 2)
    private BigDecimal cash;

    private int logins;

    protected Account() {}

    public Account(String name, String password, String email, BigDecimal opening) {
        this.name = name;
        this.password = Passwords.digest(name, password);
        this.email = email;
        this.opening = Money.cents(opening);
        this.cash = this.opening;
    }

    /** Counts a login, or refuses it. */
    void login(String password) {
        if (!this.password.equals(Passwords.digest(name, password))) {
            throw new Refused("wrong name or password");
        }
        logins++;
    }

    void moveTo(String email) {
        this.email = email;
    }

    /** Pays or receives the money of an order. */
    void settle(TradeOrder order) {
        BigDecimal left = cash.add(order.cashChange());
        if (left.signum() < 0) {
            throw new Refused(name + " has " + cash + ", but the order costs " + order.cashChange().negate());
        }
        cash = left;
    }

    public String name() {
        return name;
    }

    public String email() {
        return email;
    }

    public BigDecimal opening() {
        return opening;
    }

    public BigDecimal cash() {
        return cash;
    }

    public int logins() {
        return logins;
    }
}
