package servicepath

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// refusing is a system call that fails as in a kernel without a feature: the one whose third argument is the given one.
type refusing struct {
	call  uint32
	third uint32
	errno unix.Errno
}

// apply has the calling thread's calls refused until it ends.
func (r refusing) apply() error {
	const load, jump, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // seccomp_data.nr
		{Code: jump, K: r.call, Jf: 3},
		{Code: load, K: 16 + 2*8}, // the low half of seccomp_data.args[2]
		{Code: jump, K: r.third, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(r.errno)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&program)
	pinned.Pin(&filter[0])
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	return err
}

// ruleRequest is the length of a request to delete a rule of ours: two headers, priority, mark, mask and table.
const ruleRequest = 16 + 12 + 4*8

// Where the kernel lacks what a path needs, there is none, and removing it succeeds.
func TestKernelWithoutFeatures(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	write := func() error { return filterGuest("us-test") }
	for name, c := range map[string]struct {
		kernel refusing
		fails  func() error // by what the kernel lacks
	}{
		"a transaction without nf_tables": {refusing{unix.SYS_SENDMSG, 0, unix.EOPNOTSUPP}, write},
		"a question without nf_tables":    {refusing{unix.SYS_SENDMSG, 0, unix.EINVAL}, write},
		"no nfnetlink":                    {refusing{unix.SYS_SOCKET, unix.NETLINK_NETFILTER, unix.EPROTONOSUPPORT}, write},
		"no policy routing": {refusing{unix.SYS_SENDTO, ruleRequest, unix.EOPNOTSUPP},
			func() error { return netlink.RuleDel(markRule(false, answers)) }},
	} {
		t.Run(name, func(t *testing.T) {
			guest, done := newNS(t), make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends here
				if err := errors.Join(guest.Set(), c.kernel.apply()); err != nil {
					t.Error(err)
					return
				}
				if err := c.fails(); !errors.Is(err, c.kernel.errno) {
					t.Errorf("the kernel does not refuse: %v, want %v", err, c.kernel.errno)
				}
				if c.kernel.errno == unix.EINVAL { // to a question only
					links, err := listHairpins()
					have, otherErr := listSources()
					if err := errors.Join(err, otherErr); err != nil || len(links)+len(have) != 0 {
						t.Errorf("list %v and %v: %v", links, have, err)
					}
					return
				}
				if c.kernel.third != ruleRequest { // a question for the veth is as long
					if err := Del(Owner{"net", "c1", "eth0"}, nil); err != nil {
						t.Errorf("Del: %v", err)
					}
				}
				if err := Reap("net", func(Owner) bool { return false }); err != nil {
					t.Errorf("Reap: %v", err)
				}
				if err := delRules(answers); err != nil { // as Del in a pod
					t.Errorf("remove rules: %v", err)
				}
			}()
			<-done
		})
	}
}
