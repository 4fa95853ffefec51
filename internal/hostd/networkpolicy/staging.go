package networkpolicy

import (
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/isolation"
)

// Staging is what a stream has said, in force after the next commit. It begins empty, so the
// first commit replaces what an earlier stream has said.
type Staging struct {
	pods    map[string]podRules
	changed map[string]bool // since the last commit
	peers   int             // and services, of all pods
	memory  int             // bytes
	most    int             // that memory may be, without the pods
	shared  sharedPeers
}

// NewStaging returns what a stream has said at its beginning: nothing. It may take memory bytes, see Policies.StreamMemory.
func NewStaging(memory int) *Staging {
	return &Staging{pods: map[string]podRules{}, changed: map[string]bool{}, shared: sharedPeers{}, most: memory}
}

// Count returns the number of pods.
func (s *Staging) Count() int { return len(s.pods) }

func (s *Staging) remove(name string) {
	s.count(s.pods[name], -1)
	delete(s.pods, name)
}

// count counts the rules of a pod, which begin or, with -1, cease to be those of a pod.
func (s *Staging) count(p podRules, users int) {
	for _, r := range p.rules() {
		s.memory += users * (policylimit.RuleMemory + policylimit.ServiceMemory*len(r.Services))
		s.peers += users * (len(r.Peers) + len(r.Services))
		s.memory += policylimit.RangeMemory * s.shared.use(r.Peers, users)
	}
}

// Add stages what one request says.
func (s *Staging) Add(r *hostdpb.ApplyRequest) error {
	if name := r.GetRemove(); name != "" {
		s.remove(name)
	}
	for _, message := range []*hostdpb.PodPolicy{r.GetPod(), r.GetMore()} {
		if message == nil {
			continue
		}
		name, pod, err := parsePod(message)
		if err != nil {
			return err
		}
		if message == r.GetMore() {
			if !s.changed[name] {
				return grpcstatus.Errorf(codes.InvalidArgument, "more of pod %q: name the pod first", name)
			}
			s.extend(s.pods[name], pod)
			continue
		}
		s.shared.share(pod)
		s.count(pod, 1)
		s.count(s.pods[name], -1)
		s.pods[name], s.changed[name] = pod, true
	}
	memory, peers := s.most+policylimit.PodMemory*len(s.pods), policylimit.StreamPeers+policylimit.PodPeers*len(s.pods)
	if len(s.pods) > policylimit.Pods || s.memory > memory || s.peers > peers {
		return grpcstatus.Errorf(codes.ResourceExhausted, "%d pods with %d peers and services, which take %d bytes: want at most %d, %d and %d",
			len(s.pods), s.peers, s.memory, policylimit.Pods, peers, memory)
	}
	return nil
}

func (p podRules) rules() (all []isolation.Rule) {
	for _, d := range []*isolation.Direction{p.Ingress, p.Egress} {
		if d != nil {
			all = append(all, d.Allow...)
		}
	}
	return all
}

// extend gives a pod, whose rules nobody else has yet, further ones. It does not look at those that the pod has: a pod
// may come in any number of requests.
func (s *Staging) extend(p, more podRules) {
	if p.Ingress == nil {
		more.Ingress = nil // the pod is not isolated
	}
	if p.Egress == nil {
		more.Egress = nil
	}
	s.shared.share(more)
	s.count(more, 1)
	if more.Ingress != nil {
		p.Ingress.Allow = append(p.Ingress.Allow, more.Ingress.Allow...)
	}
	if more.Egress != nil {
		p.Egress.Allow = append(p.Egress.Allow, more.Egress.Allow...)
	}
}

func parsePod(m *hostdpb.PodPolicy) (name string, p podRules, err error) {
	name = m.GetPod()
	if name == "" || len(name) > maxPodName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %.80q: want 1 to %d bytes of printable ASCII without blanks", name, maxPodName)
	}
	if len(m.GetAddresses()) > maxPodAddresses {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: %d addresses: want at most %d", name, len(m.GetAddresses()), maxPodAddresses)
	}
	if p.UID = m.GetUid(); p.UID != "" && !attachment.IsPodUID(p.UID) {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: UID %.80q: want 1 to %d letters, digits and '-'", name, p.UID, attachment.MaxPodUID)
	}
	if p.Node = m.GetNode(); len(p.Node) > maxPodName {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: node %.80q: want at most %d bytes", name, p.Node, maxPodName)
	}
	for _, text := range m.GetAddresses() {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: address %.60q: want an IP address", name, text)
		}
		p.Addresses = append(p.Addresses, a)
	}
	if p.Ingress, err = parseDirection(m.GetIngress()); err == nil {
		p.Egress, err = parseDirection(m.GetEgress())
	}
	if err != nil {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: %v", name, err)
	}
	return name, p, nil
}

func parseDirection(m *hostdpb.PolicyDirection) (*isolation.Direction, error) {
	if m == nil {
		return nil, nil
	}
	d := &isolation.Direction{}
	for _, r := range m.GetAllow() {
		rule, err := parseRule(r)
		if err != nil {
			return nil, err
		}
		d.Allow = append(d.Allow, rule)
	}
	return d, nil
}
