package workload

import (
	"path"
	"strings"
	"time"
)

// Archives of class data, which Java maps in place of reading, checking and linking each class. With them a
// broker starts in half of the CPU time.
const (
	brokerClasses   = "broker.jsa"
	producerClasses = "producer.jsa"
)

// loadClasses is the option that loads an archive. Without the archive, or with one of another Java, Java
// starts as it does without the option.
func loadClasses(name string) string { return "-XX:SharedArchiveFile=" + path.Join(kafkaDir, name) }

// kafkaClasses makes the archives of what a broker and the producer load for some messages.
func kafkaClasses() Derived {
	const port = 5001
	dump := func(name string) string { return "-XX:ArchiveClassesAtExit=/tmp/classes/" + name }
	broker := kafkaBroker(Endpoint{Address: "127.0.0.1", Port: port}, dump(brokerClasses))
	for i, arg := range broker {
		broker[i] = strings.Replace(arg, "auto.create.topics.enable=false", "auto.create.topics.enable=true", 1)
	}
	tool := newKafka().tool(Params{Rate: 600, Warmup: time.Second, Duration: time.Second}, port, dump(producerClasses))
	return Derived{
		Script: `out=$1
mkdir /tmp/classes && echo "127.0.0.1 ` + kafkaHost + `" >` + kafkaHosts + `
` + quoted(broker) + ` >/tmp/broker.log 2>&1 &
broker=$!
until busybox grep -q "` + kafkaStarted + `" /tmp/broker.log; do
	kill -0 $broker 2>/dev/null || { busybox tail -n 3 /tmp/broker.log >&2; exit 1; }
	busybox sleep 0.1
done
` + quoted(tool) + ` >/tmp/tool.log 2>&1
kill $broker
wait $broker
cp /tmp/classes/` + brokerClasses + " /tmp/classes/" + producerClasses + ` "$out" || { busybox tail -n 3 /tmp/tool.log >&2; exit 1; }
`,
		Paths: []string{path.Join(kafkaDir, brokerClasses), path.Join(kafkaDir, producerClasses)},
	}
}

// quoted is a command as a shell takes it.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
