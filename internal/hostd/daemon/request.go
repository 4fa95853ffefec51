package daemon

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostd/hotplug"
)

// maxContainerID leaves an alias room for the rest. Runtimes use 64.
const maxContainerID = 128

var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// attachmentKey checks what a guest has sent. The rules are CNI's, but that an
// interface's name is ASCII.
func attachmentKey(container, iface string) (hotplug.Key, error) {
	key := hotplug.Key{ContainerID: container, Interface: iface}
	if len(container) > maxContainerID || !containerID.MatchString(container) {
		return key, status.Errorf(codes.InvalidArgument,
			"container_id %.160q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", container, maxContainerID)
	}
	if err := checkInterface(iface); err != nil {
		return key, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := key.Validate(); err != nil {
		return key, status.Error(codes.InvalidArgument, err.Error())
	}
	return key, nil
}

// checkInterface follows the kernel (dev_valid_name in net/core/dev.c).
func checkInterface(name string) error {
	invalid := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsFunc(name, invalid) {
		return fmt.Errorf("interface %.40q: want 1 to 15 bytes without '/', ':' and white space", name)
	}
	return nil
}

// maxNetwork leaves an alias room for the rest.
const maxNetwork = 63

// networkName checks the name of a CNI network; an older plugin gives none.
func networkName(name string) (string, error) {
	if name != "" && (len(name) > maxNetwork || !containerID.MatchString(name)) {
		return "", status.Errorf(codes.InvalidArgument,
			"network %.80q: want at most %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", name, maxNetwork)
	}
	return name, nil
}
