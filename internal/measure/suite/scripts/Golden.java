public class Golden {
    public static void main(String[] args) {
        new org.sunflow.Benchmark(Integer.parseInt(args[0]), false, true, true, 1, false).kernelMain();
    }
}
