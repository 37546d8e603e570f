// Settings of the threads that serve the state of Python's stateful operators.
//
// Spark starts such a thread for every task. It has no session, and so none of its settings: it would generate code for
// every encoder of state, anew in each task, to convert a few rows. With these it interprets them.
package headrace;

import java.lang.reflect.Field;
import org.apache.spark.sql.internal.SQLConf;

public final class StateSettings extends ThreadLocal {
    private static final String THREAD = "stateConnectionListenerThread";

    protected Object initialValue() {
        SQLConf settings = new SQLConf();
        if (THREAD.equals(Thread.currentThread().getName())) {
            settings.setConfString("spark.sql.codegen.factoryMode", "NO_CODEGEN");
        }
        return settings;
    }

    // From now on, threads without a session get their settings here: the defaults, as before, unless they serve state.
    public void install() throws Exception {
        SQLConf.getFallbackConf();  // which makes what is replaced
        Class companion = Class.forName("org.apache.spark.sql.internal.SQLConf$", true, SQLConf.class.getClassLoader());
        Field settings = companion.getDeclaredField("fallbackConf");
        settings.setAccessible(true);
        settings.set(null, this);
    }
}
