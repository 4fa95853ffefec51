package agent

import "time"

// Order is what an agent can be told to do. A is the type of its answer.
type Order[A any] interface {
	verb() string
	answer(A) // is never called: it ties the answer to the order
}

// Kind is what a server does.
type Kind string

// The kinds of servers. Those of TCP answer every connection in the same way.
const (
	Echo Kind = "echo" // TCP and UDP: send back what comes
	Name Kind = "name" // TCP and UDP: send the server's name, then (TCP) close
	// Tally reads to the end, then sends how many bytes came, and their sum.
	Tally Kind = "tally"
	// Greet sends the server's name, half-closes, and reads to the end.
	Greet Kind = "greet"
	// Source reads a size, 8 bytes, and sends a stream of that size.
	Source Kind = "source"
	// Mute listens with a backlog of 0 and accepts nothing until Resume, then echoes.
	Mute Kind = "mute"
	// Sink (UDP) counts what comes.
	Sink Kind = "sink"
	// Elsewhere (UDP) answers each datagram from a new socket, as TFTP does.
	Elsewhere Kind = "elsewhere"
	HTTP      Kind = "http"  // GET /bytes?size=N
	Proxy     Kind = "proxy" // HTTP, for Upstream
	GRPC      Kind = "grpc"  // see CallGRPC
)

// About asks for what distinguishes this fraction.
type About struct{}

// Description is the answer to About.
type Description struct {
	Host   string `json:"host"`
	Kernel string `json:"kernel"`
	// Ephemeral are the first and the last port of net.ipv4.ip_local_port_range.
	Ephemeral [2]uint16 `json:"ephemeral"`
	// Interfaces are those of the network namespace.
	Interfaces []string `json:"interfaces"`
}

// Serve starts a server, which runs until Stop.
type Serve struct {
	Network   string `json:"network"` // tcp4, tcp6, udp4, udp6, or tcp: both families by one socket
	Address   string `json:"address"`
	Kind      Kind   `json:"kind"`
	Name      string `json:"name,omitempty"`
	Upstream  string `json:"upstream,omitempty"`  // the address of a Proxy's server
	Device    string `json:"device,omitempty"`    // SO_BINDTODEVICE
	Multipath bool   `json:"multipath,omitempty"` // MPTCP, where the kernel has it
	// Process puts the server into a process of its own, which Stop kills.
	// Report and Resume are not for it.
	Process bool `json:"process,omitempty"`
}

// Served is the answer to Serve.
type Served struct {
	Handle  int    `json:"handle"`
	Address string `json:"address"` // as getsockname tells it
}

// Stop ends what has the handle, and waits for its end.
type Stop struct {
	Handle int `json:"handle"`
}

// Nothing is the answer to orders that have none.
type Nothing struct{}

// Resume lets a Mute server accept.
type Resume struct {
	Handle int `json:"handle"`
}

// Report asks what a server has seen.
type Report struct {
	Handle int `json:"handle"`
}

// Seen is the answer to Report.
type Seen struct {
	Conns []Conn `json:"conns,omitempty"` // of TCP, in the order of their coming
	// Datagrams, and how many of them were different, and their bytes.
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
	End      string `json:"end,omitempty"` // how reading ended, as in Attempt.Code; "": it did not
}

// Attempt is one attempt to reach a server.
type Attempt struct {
	// Code is "" when all went well, else the name of the errno, "timeout", "end"
	// (the peer closed), "mismatch" (not what was sent came back) or "surplus"
	// (more came than was asked for).
	Code  string        `json:"code,omitempty"`
	Took  time.Duration `json:"took_ns"`
	Local string        `json:"local,omitempty"`
	Peer  string        `json:"peer,omitempty"`
	Said  string        `json:"said,omitempty"` // what a Name server said
}

// Attempts are the answer to orders that try several times. A series ends with
// the first attempt that times out.
type Attempts []Attempt

// Connect connects, sends a message, reads as much, compares, and closes; times over.
type Connect struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Local     string `json:"local,omitempty"` // to bind to, with SO_REUSEADDR; "": the kernel chooses
	Device    string `json:"device,omitempty"`
	Multipath bool   `json:"multipath,omitempty"`
	Times     int    `json:"times"`
	AtOnce    bool   `json:"at_once,omitempty"` // all times at the same time
	Message   int    `json:"message"`           // bytes; 0: read to the end what the server says
	// Patience bounds connecting; 0: the usual.
	Patience time.Duration `json:"patience_ns,omitempty"`
}

// Datagrams sends datagrams and awaits each back before the next. Afterwards
// nothing more may come.
type Datagrams struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Local     string `json:"local,omitempty"`
	Device    string `json:"device,omitempty"`
	Connected bool   `json:"connected,omitempty"` // the socket is connected: refusals are told
	Anyone    bool   `json:"anyone,omitempty"`    // the answer may come from another port
	Sizes     []int  `json:"sizes,omitempty"`     // bytes of each, at most 65,527
	Named     bool   `json:"named,omitempty"`     // a Name server answers: take what it says
}

// Pour sends numbered datagrams one way.
type Pour struct {
	Network string        `json:"network"`
	Address string        `json:"address"`
	From    string        `json:"from"` // makes them different from others'
	Count   int           `json:"count"`
	Gap     time.Duration `json:"gap_ns"` // between two
}

// Segments sends one buffer that the kernel cuts into datagrams (UDP_SEGMENT).
type Segments struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Size    int    `json:"size"` // bytes of each
	Count   int    `json:"count"`
}

// Poured is the answer to Pour and Segments: the codes of what could not be sent.
type Poured []string

// Hold opens connections (or connected UDP sockets) and keeps them.
type Hold struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Local   string `json:"local,omitempty"`
	Times   int    `json:"times"`
}

// Held is the answer to Hold.
type Held struct {
	Handle int      `json:"handle"`
	Locals []string `json:"locals"` // addresses of the connections, as getsockname tells them
}

// Exchange sends messages over each held connection in turn, and awaits them back.
type Exchange struct {
	Handle int `json:"handle"`
	Times  int `json:"times"`
	Size   int `json:"size"`
	// Urgent sends the middle byte out of band.
	Urgent bool `json:"urgent,omitempty"`
}

// AwaitEnd waits for the end of the first held connection. Its Code says how the
// connection ended, and "timeout" that it did not.
type AwaitEnd struct {
	Handle int `json:"handle"`
}

// Abort resets held connections.
type Abort struct {
	Handle int `json:"handle"`
}

// Transfer moves one large stream each way that the server's kind has: Echo,
// Tally, Greet or Source.
type Transfer struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Kind    Kind   `json:"kind"`
	Size    int64  `json:"size"`
}

// Moved is the answer to Transfer.
type Moved struct {
	Sent        int64  `json:"sent"`
	SentSum     uint64 `json:"sent_sum"` // CRC-64
	Received    int64  `json:"received"`
	ReceivedSum uint64 `json:"received_sum"`
	Said        string `json:"said,omitempty"` // by Tally or Greet
	MSS         int    `json:"mss"`            // the size of segments in the end, TCP_MAXSEG
}

// Bind binds sockets, of TCP also listening, and keeps them.
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

// Ping sends echo requests, and awaits each before the next.
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

// Traffic asks what has left by network interfaces other than lo.
type Traffic struct{}

// Left is the answer to Traffic.
type Left struct {
	Bytes uint64 `json:"bytes"`
}

// Look asks which programs are not in the fraction's PATH.
type Look struct {
	Programs []string `json:"programs"`
}

// Missing is the answer to Look.
type Missing []string

// Run runs a real program, in a new directory that goes with it. In Args and
// Files, {dir} stands for the directory.
type Run struct {
	Args  []string          `json:"args"`
	Files map[string]string `json:"files,omitempty"` // by name
	// Ready is the address where the program will listen: it is left running, until
	// Stop, as soon as one can connect there. "": the program is to end by itself.
	Ready string `json:"ready,omitempty"`
	// Unprivileged runs it as nobody, when the agent is root.
	Unprivileged bool `json:"unprivileged,omitempty"`
}

// Ran is the answer to Run.
type Ran struct {
	Handle int    `json:"handle,omitempty"`
	Output string `json:"output,omitempty"` // the standard output of one that has ended
}

// Fetch gets a page, by Go's own client.
type Fetch struct {
	URL string `json:"url"`
}

// Page is the answer to Fetch.
type Page struct {
	Status int    `json:"status"`
	Size   int64  `json:"size"`
	Sum    uint64 `json:"sum"` // CRC-64
}

// CallGRPC calls a GRPC server: single calls, one of them large, and a stream of
// both directions.
type CallGRPC struct {
	Address string `json:"address"`
	Large   int    `json:"large"` // bytes of the large one
	Stream  int    `json:"stream"`
}

// Called is the answer to CallGRPC.
type Called struct {
	Calls    int `json:"calls"`    // that were answered as they should
	Messages int `json:"messages"` // of the stream that came back
}

func (About) verb() string     { return "about" }
func (Serve) verb() string     { return "serve" }
func (Stop) verb() string      { return "stop" }
func (Resume) verb() string    { return "resume" }
func (Report) verb() string    { return "report" }
func (Connect) verb() string   { return "connect" }
func (Datagrams) verb() string { return "datagrams" }
func (Pour) verb() string      { return "pour" }
func (Segments) verb() string  { return "segments" }
func (Hold) verb() string      { return "hold" }
func (Exchange) verb() string  { return "exchange" }
func (AwaitEnd) verb() string  { return "await-end" }
func (Abort) verb() string     { return "abort" }
func (Transfer) verb() string  { return "transfer" }
func (Bind) verb() string      { return "bind" }
func (Ping) verb() string      { return "ping" }
func (Traffic) verb() string   { return "traffic" }
func (Look) verb() string      { return "look" }
func (Run) verb() string       { return "run" }
func (Fetch) verb() string     { return "fetch" }
func (CallGRPC) verb() string  { return "call-grpc" }

func (About) answer(Description)  {}
func (Serve) answer(Served)       {}
func (Stop) answer(Nothing)       {}
func (Resume) answer(Nothing)     {}
func (Report) answer(Seen)        {}
func (Connect) answer(Attempts)   {}
func (Datagrams) answer(Attempts) {}
func (Pour) answer(Poured)        {}
func (Segments) answer(Poured)    {}
func (Hold) answer(Held)          {}
func (Exchange) answer(Attempts)  {}
func (AwaitEnd) answer(Attempt)   {}
func (Abort) answer(Nothing)      {}
func (Transfer) answer(Moved)     {}
func (Bind) answer(Bound)         {}
func (Ping) answer(Pinged)        {}
func (Traffic) answer(Left)       {}
func (Look) answer(Missing)       {}
func (Run) answer(Ran)            {}
func (Fetch) answer(Page)         {}
func (CallGRPC) answer(Called)    {}

// isStream tells TCP from UDP.
func isStream(network string) bool { return network[:min(3, len(network))] == "tcp" }
