package loopback

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// oldest is the first kernel that has all that the programs use: atomic
// operations with a result (5.12) and bpf_for_each_map_elem (5.13).
const oldest = 5<<16 | 13<<8

// Probe returns an error, which names what is missing and the mend, unless this
// kernel can do what Join asks of it. It does so in a network namespace of its own,
// and changes nothing.
func Probe() error {
	if err := probe(); err != nil {
		return fmt.Errorf("this guest cannot share a pod's localhost: %w", err)
	}
	return nil
}

func probe() error {
	version, err := features.LinuxVersionCode()
	if err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	if version < oldest {
		return fmt.Errorf("its kernel is Linux %d.%d: want 5.13 or newer", version>>16, version>>8&0xff)
	}
	for _, helper := range []asm.BuiltinFunc{asm.FnSkcLookupTcp, asm.FnSkLookupUdp, asm.FnForEachMapElem} {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, helper); err != nil {
			return explain(fmt.Errorf("use eBPF helper %s: %w", helper, err))
		}
	}
	programs, err := load(loopbackSegment{})
	if err != nil {
		return explain(err)
	}
	defer programs.Close()
	alone, err := ns.TempNetNS()
	if err != nil {
		return explain(fmt.Errorf("make network namespace: %w", err))
	}
	defer alone.Close()
	return explain(alone.Do(func(ns.NetNS) error {
		return errors.Join(
			attach(lo, programs.LeaveLo, netlink.HANDLE_MIN_EGRESS),
			attach(lo, programs.EnterNic, netlink.HANDLE_MIN_INGRESS))
	}))
}

// explain adds what to do about an error.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: be root in the guest", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: want a kernel with CONFIG_BPF_SYSCALL, CONFIG_INET and net.core.bpf_jit_enable=1", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: want a kernel with CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF, and its modules", err)
	}
	return err
}
