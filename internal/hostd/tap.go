package hostd

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hotplug"
)

// observeTAPs lists the TAPs of the network namespace.
func observeTAPs() ([]hotplug.ObservedTAP, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list TAPs: %w", err)
	}
	var taps []hotplug.ObservedTAP
	for _, l := range links {
		if _, ok := l.(*netlink.Tuntap); ok {
			taps = append(taps, hotplug.ObservedTAP{Name: l.Attrs().Name, Owner: l.Attrs().Alias})
		}
	}
	return taps, nil
}

// deleteTAP deletes a TAP, also one in use. That there is none is a success.
func deleteTAP(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // gone in between
		return fmt.Errorf("delete TAP %s: %w", name, err)
	}
	return nil
}
