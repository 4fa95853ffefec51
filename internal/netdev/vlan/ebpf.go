package vlan

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tc"
)

// Offsets in the kernel's struct __sk_buff.
const (
	skbVLANPresent = 20
	skbVLANTCI     = 24
	skbVLANProto   = 28
)

const (
	actShot  = 2     // TC_ACT_SHOT
	vlanMask = 0xfff // the VLAN's number in a tag, without priority and drop eligibility
)

// tagProto is the protocol of a VLAN tag (IEEE 802.1Q) in an skb.
var tagProto = int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_8021Q)))

func newVLANMap() (*ebpf.Map, error) {
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "unnest_vlans", Type: ebpf.Array,
		KeySize: 4, ValueSize: 4, MaxEntries: MaxVLAN + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("make eBPF map: %w", err)
	}
	return m, nil
}

// outward returns the program of the TAP. It removes the tag from a frame of the
// guest and sends the frame by the inner end of the tag's VLAN. The kernel has moved
// the tag from the frame to the skb; removing it moves a second tag there. A VLAN
// without a port has the index 0, and the kernel drops frames redirected to it.
func outward(vlans *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbVLANPresent, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R6, skbVLANProto, asm.Word),
		asm.JNE.Imm(asm.R2, tagProto, "drop"),

		asm.LoadMem(asm.R2, asm.R6, skbVLANTCI, asm.Word),
		asm.And.Imm(asm.R2, vlanMask),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, vlans.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.Word),

		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnSkbVlanPop.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R6, skbVLANPresent, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "drop"),

		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Mov.Imm(asm.R2, 0), // egress
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
	}
}

// inward returns the program of an inner end. It tags a frame from the bridge and
// sends it to the guest by the TAP.
func inward(vlan, tap int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbVLANPresent, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "drop"),

		asm.Mov.Imm(asm.R2, tagProto),
		asm.Mov.Imm(asm.R3, int32(vlan)),
		asm.FnSkbVlanPush.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),

		asm.Mov.Imm(asm.R1, int32(tap)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
	}
}

// attach attaches a program to a link's ingress.
func attach(l netlink.Link, code asm.Instructions) error {
	const name = "unnest_trunk"
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		return fmt.Errorf("load program for %s: %w", l.Attrs().Name, err)
	}
	defer program.Close()
	return tc.Attach(l, netlink.HANDLE_MIN_INGRESS, 1, name, program)
}
