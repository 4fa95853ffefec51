package api

import (
	"regexp"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/link"
)

// maxContainerID leaves room in an alias for the rest. Runtimes use 64.
const maxContainerID = 128

// maxNetwork leaves room in an alias for the rest.
const maxNetwork = 63

var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// attachmentKey checks what a guest has sent. The rules are CNI's, except that an
// interface's name is ASCII.
func attachmentKey(kind attachment.Kind, container, iface string) (attachment.Key, error) {
	key := attachment.Key{Kind: kind, Owner: container, Name: iface}
	if len(container) > maxContainerID || !containerID.MatchString(container) {
		return key, grpcstatus.Errorf(codes.InvalidArgument,
			"container_id %.160q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", container, maxContainerID)
	}
	if err := link.CheckName(iface); err != nil {
		return key, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if err := key.Validate(); err != nil {
		return key, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	return key, nil
}

// networkName checks the name of a CNI network, which an older plugin does not send.
func networkName(name string) (string, error) {
	if name != "" && (len(name) > maxNetwork || !containerID.MatchString(name)) {
		return "", grpcstatus.Errorf(codes.InvalidArgument,
			"network %.80q: want at most %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", name, maxNetwork)
	}
	return name, nil
}
