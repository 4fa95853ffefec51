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

// oldest is the first kernel with everything that the programs use: atomic
// operations with a result (5.12) and bpf_for_each_map_elem (5.13).
const oldest = 5<<16 | 13<<8

// Probe returns an error, which names what is missing and the fix, unless this kernel
// supports Join. It tries in a network namespace of its own, and changes nothing.
func Probe() error {
	if err := probe(); err != nil {
		return fmt.Errorf("share a pod's localhost from this guest: %w%s", err, fix(err))
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
	for _, helper := range []asm.BuiltinFunc{asm.FnSkcLookupTcp, asm.FnSkLookupUdp, asm.FnForEachMapElem, asm.FnSkStorageGet} {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, helper); err != nil {
			return fmt.Errorf("use eBPF helper %s: %w", helper, err)
		}
	}
	programs, err := load(loopbackSegment{})
	if err != nil {
		return err
	}
	defer programs.Close()
	alone, err := ns.TempNetNS()
	if err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	defer alone.Close()
	return alone.Do(func(ns.NetNS) error {
		return errors.Join(
			attach(lo, programs.LeaveLo, netlink.HANDLE_MIN_EGRESS),
			attach(lo, programs.EnterNic, netlink.HANDLE_MIN_INGRESS))
	})
}

// fix is what the user can do about an error of probe, "" if that is not known.
func fix(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "; run as root in the guest"
	case errors.Is(err, ebpf.ErrNotSupported):
		return "; use a kernel with CONFIG_BPF_SYSCALL, CONFIG_INET and net.core.bpf_jit_enable=1"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return "; use a kernel with CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF, and install its modules"
	}
	return ""
}
