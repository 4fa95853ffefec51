package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// messageOffset is the offset of the message in an Ethernet frame with IPv4 without options.
const messageOffset = 14 + 20 + 8

// Offsets in struct __sk_buff (linux/bpf.h).
const (
	skbPacketType = 4
	skbInterface  = 40
)

// outgoing is the type of an outgoing packet (linux/if_packet.h).
const outgoing = 4

// noWakeup is BPF_RB_NO_WAKEUP: do not wake the reader.
const noWakeup = 1

// An event describes a frame: its time, the second word of the message in network byte order,
// and twice the index of the link, plus 1 if the frame is outgoing. It is at eventAt on the
// stack, followed by the two words of the message.
const (
	eventLength = 16
	eventAt     = -24
	wordsAt     = -8
)

// stampProgram records the time of each frame with a marked message, and drops all frames. As
// the filter of a packet socket it sees incoming frames before all programs of traffic control,
// and outgoing frames after them, just before the driver.
func stampProgram(ring *ebpf.Map) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "stamp", Type: ebpf.SocketFilter, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			// The words of the message.
			asm.Mov.Imm(asm.R2, messageOffset),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, wordsAt),
			asm.Mov.Imm(asm.R4, headLength),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "drop"),
			asm.LoadMem(asm.R1, asm.RFP, wordsAt, asm.Word),
			asm.HostTo(asm.BE, asm.R1, asm.Word),
			asm.JNE.Imm(asm.R1, mark, "drop"),
			asm.FnKtimeGetNs.Call(),
			asm.StoreMem(asm.RFP, eventAt, asm.R0, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, wordsAt+4, asm.Word),
			asm.StoreMem(asm.RFP, eventAt+8, asm.R1, asm.Word),
			asm.LoadMem(asm.R1, asm.R6, skbInterface, asm.Word),
			asm.LSh.Imm(asm.R1, 1),
			asm.LoadMem(asm.R2, asm.R6, skbPacketType, asm.Word),
			asm.JNE.Imm(asm.R2, outgoing, "in"),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.RFP, eventAt+12, asm.R1, asm.Word).WithSymbol("in"),
			asm.LoadMapPtr(asm.R1, ring.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, eventAt),
			asm.Mov.Imm(asm.R3, eventLength),
			asm.Mov.Imm(asm.R4, noWakeup),
			asm.FnRingbufOutput.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("drop"),
			asm.Return(),
		},
	}
}

// stamps records times until it is collected.
type stamps struct {
	ring    *ebpf.Map
	program *ebpf.Program
	sockets []int
	links   map[uint32]string // by index
}

func stamp(links []string) (_ *stamps, err error) {
	s := &stamps{links: map[uint32]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := rlimit.RemoveMemlock(); err != nil { // for kernels before 5.11
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	if s.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "stamps", Type: ebpf.RingBuf, MaxEntries: 1 << 20}); err != nil {
		return nil, fmt.Errorf("create ring buffer: %w", err)
	}
	if s.program, err = ebpf.NewProgram(stampProgram(s.ring)); err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	for _, link := range links {
		if err := s.watch(link); err != nil {
			return nil, fmt.Errorf("watch %s: %w", link, err)
		}
	}
	return s, nil
}

func (s *stamps) watch(link string) error {
	number, err := index(link)
	if err != nil {
		return err
	}
	s.links[uint32(number)] = link
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing until it is bound
	if err != nil {
		return err
	}
	s.sockets = append(s.sockets, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, s.program.FD()); err != nil {
		return err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: number})
}

// collect stops recording and adds the times.
func (s *stamps) collect(into times) (err error) {
	for _, fd := range s.sockets {
		err = errors.Join(err, unix.Close(fd))
	}
	s.sockets = nil
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := ringbuf.NewReader(s.ring)
	if err != nil {
		return fmt.Errorf("read ring buffer: %w", err)
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0)) // no event will arrive
	for {
		var record ringbuf.Record
		err := r.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ring buffer: %w", err)
		}
		s.add(record.RawSample, into)
	}
}

func (s *stamps) add(event []byte, into times) {
	at := binary.NativeEndian.Uint64(event)
	word := binary.BigEndian.Uint32(event[8:])
	where := binary.NativeEndian.Uint32(event[12:])
	way, kind := "in", "request"
	if where&1 == 1 {
		way = "out"
	}
	if word&1 == 1 {
		kind = "answer"
	}
	into.set(fmt.Sprintf("%s %s %s", s.links[where>>1], way, kind), int(word>>1), int64(at))
}

func (s *stamps) close() (err error) {
	for _, fd := range s.sockets {
		err = errors.Join(err, unix.Close(fd))
	}
	if s.program != nil {
		err = errors.Join(err, s.program.Close())
	}
	if s.ring != nil {
		err = errors.Join(err, s.ring.Close())
	}
	return err
}

// cost is the cost of an eBPF program while statistics were enabled.
type cost struct {
	Runs uint64 `json:"runs"`
	Ns   int64  `json:"ns"`
}

// cost returns costs by program name, as sums over programs of the same name.
func (a *agent) cost(enable bool, r *reply) error {
	r.Costs = map[string]cost{}
	for id, err := ebpf.ProgramGetNextID(0); ; id, err = ebpf.ProgramGetNextID(id) {
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("list programs: %w", err)
		}
		if err := addCost(id, r.Costs); err != nil {
			return fmt.Errorf("get statistics of program %d: %w", id, err)
		}
	}
	if a.stats != nil {
		err := a.stats.Close()
		a.stats = nil
		if err != nil {
			return err
		}
	}
	if !enable {
		return nil
	}
	var err error
	a.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	return err
}

func addCost(id ebpf.ProgramID, costs map[string]cost) error {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) { // ended meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	stats, err := p.Stats()
	if err != nil {
		return err
	}
	c := costs[info.Name]
	costs[info.Name] = cost{c.Runs + stats.RunCount, c.Ns + stats.Runtime.Nanoseconds()}
	return nil
}
