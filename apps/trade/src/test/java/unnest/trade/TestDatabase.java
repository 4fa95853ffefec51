package unnest.trade;

import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import javax.persistence.EntityManager;
import javax.persistence.EntityManagerFactory;
import javax.persistence.Persistence;

/** A new, filled database in memory. Each call of in is a transaction, as the container makes them. */
final class TestDatabase implements AutoCloseable {
    private final EntityManagerFactory factory = Persistence.createEntityManagerFactory("trade-test",
            Map.of("javax.persistence.jdbc.url", "jdbc:h2:mem:" + UUID.randomUUID() + ";DB_CLOSE_DELAY=-1;LOCK_TIMEOUT=60000"));

    TestDatabase() {
        in(em -> {
            Population population = new Population();
            population.em = em;
            population.fill();
            return null;
        });
    }

    <T> T in(Function<EntityManager, T> work) {
        EntityManager em = factory.createEntityManager();
        try {
            em.getTransaction().begin();
            T result = work.apply(em);
            em.getTransaction().commit();
            return result;
        } finally {
            if (em.getTransaction().isActive()) {
                em.getTransaction().rollback();
            }
            em.close();
        }
    }

    <T> T trade(Function<Trading, T> work) {
        return in(em -> {
            Trading trading = new Trading();
            trading.em = em;
            return work.apply(trading);
        });
    }

    LedgerReport check() {
        return in(em -> {
            Ledger ledger = new Ledger();
            ledger.em = em;
            return ledger.check();
        });
    }

    void sql(String statement) {
        in(em -> em.createNativeQuery(statement).executeUpdate());
    }

    @Override
    public void close() {
        factory.close();
    }
}
