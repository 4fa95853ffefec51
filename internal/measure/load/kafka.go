package load

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/workload"
)

// produceJob is a load of a Kafka broker, by Kafka's own producer performance tool.
type produceJob struct {
	Job
	topic       string
	hosts, name string // the file that resolves the name of the broker for the tool
	tool        []string
}

// produce makes the topic, runs the tool, and checks that the broker has every message. Its load is prepared
// when the broker has the messages of the warm-up, so that no CPU time is counted in which the
// tool starts. The load goes on while the generator waits to be told to begin.
func produce(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) (workload.LoadReport, error) {
	j, err := parseProduce(args[1:], stderr)
	if err != nil {
		return workload.LoadReport{}, err
	}
	b, err := j.broker(ctx)
	if err != nil {
		return workload.LoadReport{}, err
	}
	defer b.client.Close()
	if err := b.createTopic(ctx); err != nil {
		return workload.LoadReport{}, err
	}
	tool, err := j.start(ctx)
	if err != nil {
		return workload.LoadReport{}, err
	}
	defer tool.end()
	all, before := workload.Messages(j.Rate, j.Warmup, j.Duration)
	first, err := tool.begin(ctx, b, before, func() error { return j.waits(ctx, stdin, stderr) })
	if err != nil {
		return workload.LoadReport{}, err
	}
	summary, err := tool.summary(all, before)
	if err != nil {
		return workload.LoadReport{}, err
	}
	has, err := b.messages(ctx)
	if err == nil && has != int64(all) {
		err = fmt.Errorf("the broker acknowledged %d messages and has %d", all, has)
	}
	if err == nil && has == first {
		err = fmt.Errorf("the broker had all %d messages before the load was told to begin: lengthen warmup and duration", all)
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	report, err := summary.Report(j.Rate)
	report.Answers = float64(has - first)
	return report, err
}

func parseProduce(args []string, stderr io.Writer) (j produceJob, err error) {
	flags := flag.NewFlagSet("kafka", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&j.Target, "target", "", "`HOST:PORT` of the broker")
	flags.StringVar(&j.topic, "topic", "", "topic to make")
	flags.StringVar(&j.hosts, "hosts", "", "`FILE` to write, which says to the tool where the broker is")
	flags.StringVar(&j.name, "name", "", "name of the broker in that file")
	flags.IntVar(&j.Rate, "rate", 0, "messages/s")
	flags.DurationVar(&j.Warmup, "warmup", 0, "load before the measured part")
	flags.DurationVar(&j.Duration, "duration", time.Second, "of the measured part")
	flags.BoolVar(&j.Wait, "wait", false, "print a line after the warm-up, and wait for a line before the end")
	if err := flags.Parse(args); err != nil {
		return j, err
	}
	j.tool = flags.Args()
	if j.Target == "" || j.topic == "" || j.hosts == "" || j.name == "" || len(j.tool) == 0 || j.Rate < 1 || j.Warmup < 0 || j.Duration <= 0 {
		return j, errors.New("want -target, -topic, -hosts, -name, a rate over 0, and the command of the tool")
	}
	return j, nil
}

type broker struct {
	client *kgo.Client
	topic  string
}

// brokerPatience is how long the broker may take for an answer that is not measured. In an emulated guest on
// a busy machine, the start of the producer next to it keeps it for more than 10 s.
const brokerPatience = time.Minute

// broker connects to the target, whatever address the broker says that it has.
func (j produceJob) broker(context.Context) (*broker, error) {
	var dialer net.Dialer
	client, err := kgo.NewClient(kgo.SeedBrokers(j.Target), kgo.RequestRetries(3), kgo.RetryTimeout(brokerPatience), kgo.RequestTimeoutOverhead(brokerPatience),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, j.Target)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	return &broker{client, j.topic}, nil
}

func (b *broker) createTopic(ctx context.Context) error {
	request, topic := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = b.topic, 1, 1
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), int32(answerTimeout.Milliseconds())
	answer, err := request.RequestWith(ctx, b.client)
	for i := 0; err == nil && i < len(answer.Topics); i++ {
		err = kerr.ErrorForCode(answer.Topics[i].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", b.topic, err)
	}
	return nil
}

// messages returns how many messages the topic has.
func (b *broker) messages(ctx context.Context) (int64, error) {
	request, topic, partition := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = -1 // the end
	topic.Topic, topic.Partitions = b.topic, append(topic.Partitions, partition)
	request.ReplicaID, request.Topics = -1, append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, b.client)
	if err == nil && (len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1) {
		err = errors.New("the broker answers for another topic")
	}
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("count the messages of topic %s: %w", b.topic, err)
	}
	return answer.Topics[0].Partitions[0].Offset, nil
}

// producer is the tool while it runs.
type producer struct {
	output said
	kill   context.CancelFunc
	ended  chan struct{}
	err    error
}

// said is what the tool has printed. The first error ends the tool.
type said struct {
	text []byte // read it when the tool has ended
	kill context.CancelFunc
}

func (s *said) Write(p []byte) (int, error) {
	s.text = append(s.text, p...)
	if workload.Complains(s.text) {
		s.kill()
	}
	return len(p), nil
}

// start starts the tool, which finds the broker by its name in a file.
func (j produceJob) start(ctx context.Context) (*producer, error) {
	host, _, err := net.SplitHostPort(j.Target)
	if err == nil {
		err = os.WriteFile(j.hosts, []byte(host+" "+j.name+"\n"), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("say where the broker is: %w", err)
	}
	ctx, kill := context.WithCancel(ctx)
	p := &producer{kill: kill, ended: make(chan struct{}), output: said{kill: kill}}
	cmd := exec.CommandContext(ctx, j.tool[0], j.tool[1:]...)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		kill()
		return nil, fmt.Errorf("start the producer: %w", err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

func (p *producer) end() {
	p.kill()
	<-p.ended
}

// offsetPause is between two questions how many messages the broker has.
const offsetPause = 100 * time.Millisecond

// begin waits until the broker has the messages of the warm-up, and to be told to begin. It returns how many
// messages the broker has then.
func (p *producer) begin(ctx context.Context, b *broker, before int, wait func() error) (int64, error) {
	for {
		has, err := b.messages(ctx)
		if err != nil {
			return 0, err
		}
		if has >= int64(before) {
			break
		}
		select {
		case <-p.ended: // its summary says why
			return has, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(offsetPause):
		}
	}
	if err := wait(); err != nil {
		return 0, err
	}
	return b.messages(ctx)
}

// summary waits for the end of the tool and returns its summary. The tool exits with no error when messages
// were refused.
func (p *producer) summary(all, before int) (workload.Produced, error) {
	<-p.ended
	summary, err := workload.ParseProduced(p.output.text, all, before)
	if err == nil && p.err != nil {
		err = fmt.Errorf("the producer: %w", p.err)
	}
	return summary, err
}
