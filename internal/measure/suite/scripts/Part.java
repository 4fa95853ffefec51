public class Part {
    public static void main(String[] args) {
        double time = Double.parseDouble(args[0]);
        jnt.scimark2.Random random = new jnt.scimark2.Random(101010);
        System.out.println("Mflops " + jnt.scimark2.kernel.{{.}});
    }
}
