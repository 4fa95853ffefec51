package workload

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Broker and producer load the archives that the script makes, and make none when they are measured.
func TestKafkaClasses(t *testing.T) {
	derived := newKafka().Extra().Derived
	target := Endpoint{Address: "10.0.0.2", Port: 5201}
	for i, command := range []string{join(newKafka().Server(produceLoad, target)), join(newKafka().Client(produceLoad, target))} {
		if !strings.Contains(command, " -XX:SharedArchiveFile="+derived.Paths[i]+" ") || strings.Contains(command, "ArchiveClassesAtExit") {
			t.Errorf("no %s in\n%s", derived.Paths[i], command)
		}
	}
	if !slices.Equal(derived.Paths, []string{"/usr/local/share/kafka/broker.jsa", "/usr/local/share/kafka/producer.jsa"}) {
		t.Errorf("paths %q", derived.Paths)
	}
	for _, want := range []string{"'-XX:ArchiveClassesAtExit=/tmp/classes/broker.jsa'", "'-XX:ArchiveClassesAtExit=/tmp/classes/producer.jsa'", "auto.create.topics.enable=true"} {
		if strings.Count(derived.Script, want) != 1 {
			t.Errorf("not one %s in\n%s", want, derived.Script)
		}
	}
	if out, err := exec.Command("sh", "-n", "-c", derived.Script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := quoted([]string{"a b", `it's $x`}); got != `'a b' 'it'\''s $x'` {
		t.Errorf("got %s", got)
	}
}
