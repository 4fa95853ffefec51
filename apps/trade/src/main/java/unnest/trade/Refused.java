package unnest.trade;

import javax.ejb.ApplicationException;

/** A request that the rules of trading forbid. It rolls its transaction back. */
@ApplicationException(rollback = true)
public class Refused extends RuntimeException {
    public Refused(String reason) {
        super(reason);
    }
}
