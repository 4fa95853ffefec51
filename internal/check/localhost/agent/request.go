package agent

import (
	"strings"
	"time"
)

// Request is what an agent can execute. A is the type of the answer.
type Request[A any] interface {
	answer(A) // never called: it binds the type of the answer to that of the request
}

// Kind is what a server does.
type Kind string

// The kinds of servers.
const (
	Echo Kind = "echo" // TCP and UDP: send back what arrives
	Name Kind = "name" // TCP and UDP: send the server's name, then (TCP) close
	// Tally reads to the end, then sends the number of bytes and their checksum.
	Tally Kind = "tally"
	// Greet sends the server's name, half-closes, and reads to the end.
	Greet Kind = "greet"
	// Source reads a size, 8 bytes, and sends a stream of that size.
	Source Kind = "source"
	// Mute listens with a backlog of 0 and accepts nothing until Resume, then echoes.
	Mute Kind = "mute"
	// Sink (UDP) counts what arrives.
	Sink Kind = "sink"
	// Elsewhere (UDP) answers each datagram from a new socket, as TFTP does.
	Elsewhere Kind = "elsewhere"
	HTTP      Kind = "http"  // GET /bytes?size=N
	Proxy     Kind = "proxy" // HTTP, for Upstream
	GRPC      Kind = "grpc"  // see CallGRPC
)

// About asks for properties of the fraction.
type About struct{}

// Description is the answer to About.
type Description struct {
	Host   string `json:"host"`
	Kernel string `json:"kernel"`
	// Ephemeral are the first and the last port of net.ipv4.ip_local_port_range.
	Ephemeral [2]uint16 `json:"ephemeral"`
	// Interfaces are the names of those in the network namespace.
	Interfaces []string `json:"interfaces"`
	// Addresses are the unicast addresses in the network namespace, other than loopback's and
	// those of one link only.
	Addresses []string `json:"addresses"`
}

// Serve starts a server, which runs until Stop.
type Serve struct {
	Network   string `json:"network"` // tcp4, tcp6, udp4, udp6, or tcp: one socket for both families
	Address   string `json:"address"`
	Kind      Kind   `json:"kind"`
	Name      string `json:"name,omitempty"`
	Upstream  string `json:"upstream,omitempty"`  // the address that a Proxy forwards to
	Device    string `json:"device,omitempty"`    // SO_BINDTODEVICE
	Multipath bool   `json:"multipath,omitempty"` // MPTCP, if the kernel has it
	// Process runs the server in its own process, which Stop kills. Report and Resume do
	// not work for it.
	Process bool `json:"process,omitempty"`
}

// Served is the answer to Serve.
type Served struct {
	Handle  int    `json:"handle"`
	Address string `json:"address"` // as returned by getsockname
}

// Stop ends the resource with the handle and waits for its end.
type Stop struct {
	Handle int `json:"handle"`
}

// Nothing is the answer to requests that have none.
type Nothing struct{}

// Resume has a Mute server accept.
type Resume struct {
	Handle int `json:"handle"`
}

// Report asks what a server has received.
type Report struct {
	Handle int `json:"handle"`
}

// Seen is the answer to Report.
type Seen struct {
	Conns []Conn `json:"conns,omitempty"` // of TCP, in the order in which they arrived
	// The number of datagrams, of distinct ones, and of bytes.
	Datagrams int   `json:"datagrams,omitempty"`
	Distinct  int   `json:"distinct,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"`
}

// Conn is a connection as the server sees it.
type Conn struct {
	Local    string `json:"local"`
	Remote   string `json:"remote"`
	Received int64  `json:"received"`      // bytes
	Sum      uint64 `json:"sum"`           // CRC-64 of them
	End      string `json:"end,omitempty"` // how reading ended, as in Attempt.Code; "": it has not ended
}

// Attempt is one attempt to reach a server.
type Attempt struct {
	// Code is "" for success, the name of an errno, "timeout", "end" (the peer closed),
	// "mismatch" (the answer differs from what was sent) or "surplus" (more arrived than
	// was asked for).
	Code  string        `json:"code,omitempty"`
	Took  time.Duration `json:"took_ns"`
	Local string        `json:"local,omitempty"`
	Peer  string        `json:"peer,omitempty"`
	Said  string        `json:"said,omitempty"` // what a Name server said
}

// Attempts are the answer to requests with several attempts. A series ends after the first
// attempt that times out.
type Attempts []Attempt

// Connect connects, sends a message, compares what comes back, and closes, several times.
type Connect struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Local     string `json:"local,omitempty"` // local address, with SO_REUSEADDR; "": the kernel chooses
	Device    string `json:"device,omitempty"`
	Multipath bool   `json:"multipath,omitempty"`
	FastOpen  bool   `json:"fast_open,omitempty"` // the SYN has the message (RFC 7413), without a cookie
	Times     int    `json:"times"`
	AtOnce    bool   `json:"at_once,omitempty"` // all times at the same time
	Message   int    `json:"message"`           // bytes; 0: read what the server sends, to the end
	// Patience bounds connecting; 0: the limit of the job.
	Patience time.Duration `json:"patience_ns,omitempty"`
}

// Datagrams sends datagrams and waits for the answer of each before the next. After the
// last answer nothing more may arrive.
type Datagrams struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Local     string `json:"local,omitempty"`
	Device    string `json:"device,omitempty"`
	Connected bool   `json:"connected,omitempty"` // connect the socket, so that refusals are reported
	Anyone    bool   `json:"anyone,omitempty"`    // the answer may come from another port
	Sizes     []int  `json:"sizes,omitempty"`     // bytes of each, at most 65,527
	Named     bool   `json:"named,omitempty"`     // a Name server answers: return its answer
}

// Pour sends numbered datagrams one way.
type Pour struct {
	Network string        `json:"network"`
	Address string        `json:"address"`
	From    string        `json:"from"` // distinguishes them from those of other senders
	Count   int           `json:"count"`
	Gap     time.Duration `json:"gap_ns"` // pause between two datagrams
}

// Segments sends one buffer that the kernel cuts into datagrams (UDP_SEGMENT).
type Segments struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Size    int    `json:"size"` // bytes of each
	Count   int    `json:"count"`
}

// SendErrors is the answer to Pour and Segments: the codes of failed sends.
type SendErrors []string

// Hold opens connections (or connected UDP sockets) and keeps them.
type Hold struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Local   string `json:"local,omitempty"`
	Times   int    `json:"times"`
	// AtOnce opens many at the same time. An Echo server has answered on each before the next
	// one is opened in its place.
	AtOnce bool `json:"at_once,omitempty"`
}

// Held is the answer to Hold.
type Held struct {
	Handle int      `json:"handle"`
	Locals []string `json:"locals"` // local addresses, as returned by getsockname
}

// Exchange sends messages over each held connection in turn and expects them back.
type Exchange struct {
	Handle int `json:"handle"`
	Times  int `json:"times"`
	Size   int `json:"size"`
	// Urgent sends the middle byte out of band.
	Urgent bool `json:"urgent,omitempty"`
}

// AwaitEnd waits for the end of the first held connection. The Code of the answer says how
// it ended; "timeout": it did not end.
type AwaitEnd struct {
	Handle int `json:"handle"`
}

// Abort resets held connections.
type Abort struct {
	Handle int `json:"handle"`
}

// Transfer moves one large stream in the direction or directions of the server's kind: Echo,
// Tally, Greet or Source.
type Transfer struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Kind    Kind   `json:"kind"`
	Size    int64  `json:"size"`
}

// Transferred is the answer to Transfer.
type Transferred struct {
	Sent        int64  `json:"sent"`
	SentSum     uint64 `json:"sent_sum"` // CRC-64
	Received    int64  `json:"received"`
	ReceivedSum uint64 `json:"received_sum"`
	Said        string `json:"said,omitempty"` // answer of Tally or Greet
	MSS         int    `json:"mss"`            // segment size at the end, TCP_MAXSEG
}

// Bind binds sockets and keeps them. TCP sockets also listen.
type Bind struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Times   int    `json:"times"`
}

// Bound is the answer to Bind.
type Bound struct {
	Handle    int      `json:"handle"`
	Addresses []string `json:"addresses"`
}

// Ping sends echo requests and waits for the reply to each before the next.
type Ping struct {
	Address string `json:"address"` // without a port
	Times   int    `json:"times"`
	Size    int    `json:"size"` // bytes of data, at least 8
}

// Pinged is the answer to Ping.
type Pinged struct {
	Replies    int `json:"replies"`
	Duplicates int `json:"duplicates"`
}

// Traffic asks for the number of bytes sent by network interfaces other than lo.
type Traffic struct{}

// SentBytes is the answer to Traffic.
type SentBytes struct {
	Bytes uint64 `json:"bytes"`
}

// Look asks which tools are not in the PATH of the fraction.
type Look struct {
	Programs []string `json:"programs"`
}

// Missing is the answer to Look.
type Missing []string

// Run runs a tool in a new directory, which is removed at its end. In Args and Files, {dir}
// stands for the directory.
type Run struct {
	Args  []string          `json:"args"`
	Files map[string]string `json:"files,omitempty"` // by name
	// Ready is the address where the tool will listen. The answer is sent when a connection
	// succeeds, and the tool runs until Stop. "": the tool ends without Stop.
	Ready string `json:"ready,omitempty"`
	// Unprivileged runs it as nobody if the agent is root.
	Unprivileged bool `json:"unprivileged,omitempty"`
}

// Ran is the answer to Run.
type Ran struct {
	Handle int    `json:"handle,omitempty"`
	Output string `json:"output,omitempty"` // standard output, if it has ended
}

// Fetch gets a page with Go's HTTP client.
type Fetch struct {
	URL string `json:"url"`
}

// Page is the answer to Fetch.
type Page struct {
	Status int    `json:"status"`
	Size   int64  `json:"size"`
	Sum    uint64 `json:"sum"` // CRC-64
}

// CallGRPC makes three calls to a GRPC server, the last one large, and a bidirectional
// stream.
type CallGRPC struct {
	Address string `json:"address"`
	Large   int    `json:"large"` // bytes of the large call
	Stream  int    `json:"stream"`
}

// Called is the answer to CallGRPC.
type Called struct {
	Calls    int `json:"calls"`    // with the expected answer
	Messages int `json:"messages"` // of the stream that came back
}

func (About) answer(Description)    {}
func (Serve) answer(Served)         {}
func (Stop) answer(Nothing)         {}
func (Resume) answer(Nothing)       {}
func (Report) answer(Seen)          {}
func (Connect) answer(Attempts)     {}
func (Datagrams) answer(Attempts)   {}
func (Pour) answer(SendErrors)      {}
func (Segments) answer(SendErrors)  {}
func (Hold) answer(Held)            {}
func (Exchange) answer(Attempts)    {}
func (AwaitEnd) answer(Attempt)     {}
func (Abort) answer(Nothing)        {}
func (Transfer) answer(Transferred) {}
func (Bind) answer(Bound)           {}
func (Ping) answer(Pinged)          {}
func (Traffic) answer(SentBytes)    {}
func (Look) answer(Missing)         {}
func (Run) answer(Ran)              {}
func (Fetch) answer(Page)           {}
func (CallGRPC) answer(Called)      {}

func isStream(network string) bool { return strings.HasPrefix(network, "tcp") }
