// SPDX-License-Identifier: Apache-2.0
/*
 * loopback.c - connects the localhost of a fraction with the other fractions.
 * leave_lo, at the egress of lo, sends packets that no socket of this fraction accepts
 * to the segment's NIC. enter_nic, at the ingress of the NIC, puts packets for this
 * fraction into lo. The kernel sends the answers: a fraction without a listener
 * refuses a packet that was sent to all; the sender sees the refusal when all others
 * have refused.
 */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Destinations in addition to TO_ALL and the fractions. */
#define LOCAL -1
#define NOWHERE -2

/* Verdicts on a packet from the NIC. */
#define DROP 0
#define ACCEPT 1
#define REJECT 2		/* answer with a reset */
#define RETURN 3		/* to the sender */
#define ASK_ALL 4		/* the fraction's own SYN has come back */
#define SEND_OUTSIDE 5		/* to a client outside of the pod */

#include "packet.h"
#include "port.h"
#include "alias.h"
#include "segment.h"
#include "socket.h"
#include "flow.h"
#include "end.h"
#include "connect.h"
#include "udp.h"
#include "reset.h"
#include "reject.h"
#include "outside.h"

/*
 * send_local_syn sends a SYN to a listener of this fraction. The segment stays on lo,
 * but may get another port.
 */
static __always_inline int send_local_syn(struct __sk_buff *skb, const struct segment *s, struct packet *p,
					  const struct flow *f)
{
	struct end e = {.fraction = s->fraction};
	__be16 port = claim_port(skb, p, s->fraction, 1);
	struct bpf_sock *sk;

	bpf_map_delete_elem(&hostlo_tcp, f);
	if (!port)
		return NOWHERE;	/* the socket at its own port is of another connection */
	if (port == p->sport)
		return LOCAL;
	e.visible = port;
	bpf_map_update_elem(&hostlo_tcp, f, &e, BPF_ANY);
	sk = sender(skb, p);
	if (sk)
		bpf_sk_storage_get(&hostlo_sockets, sk, &e, BPF_SK_STORAGE_GET_F_CREATE);
	return set_port(skb, p, SOURCE, port) ? LOCAL : NOWHERE;
}

/*
 * send_syn returns the destination of a SYN. Without a listener, a socket that it meets
 * belongs to a former connection, or to one with another fraction's client.
 */
static __always_inline int send_syn(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	struct bpf_sock *sk = sender(skb, p);
	struct flow f = {};
	struct end e = {};
	int state;

	if (sk)
		bpf_sk_storage_delete(&hostlo_sockets, sk);
	state = end_at(skb, p, p->sport, &f, &e);
	if (claim_own_port(s, state, &f, &e)) {
		flow_sent(&f, p);
		bpf_map_delete_elem(&hostlo_tcp, &f);
		return LOCAL;
	}
	if (e.fraction == s->fraction)
		e.fraction = 0;
	if (state == BPF_TCP_SYN_SENT && is_for_sender(p) && !has_listener(skb, p))
		state = NO_SOCKET;
	if (is_connected(state) && (state == BPF_TCP_TIME_WAIT || e.fraction) && !has_listener(skb, p))
		state = NO_SOCKET;
	flow_sent(&f, p);
	if (state == NO_SOCKET)
		return awaited(s) ? begin_connect(s, &f, p->seq) : LOCAL;
	return send_local_syn(skb, s, p, &f);
}

/*
 * is_local returns whether a socket of this fraction accepts a segment without SYN, of a
 * connection whose other end is not known to be in another fraction. Only a socket that
 * has sent a SYN accepts a refusal. If there is only a listener, the segment is for it
 * only at the end of a handshake by SYN cookies.
 */
static __always_inline int is_local(const struct packet *p, int state)
{
	if (is_refused(p))
		return state == BPF_TCP_SYN_SENT;
	if (state == BPF_TCP_LISTEN)
		return !(p->flags & (TCP_SYN | TCP_RST));
	return state != NO_SOCKET;
}

/*
 * send_tcp returns the destination of a segment. A segment for a fraction that has left
 * is local: the kernel has no socket for it, and resets the connection.
 */
static __always_inline int send_tcp(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	struct flow f = {};
	struct end e = {};
	int state;

	if (is_syn(p))
		return send_syn(skb, s, p);
	flow_sent(&f, p);
	end_of(skb, p, &f, s->fraction, &e);
	if (!e.fraction) {
		state = tcp_state(skb, p);
		if (state == BPF_TCP_ESTABLISHED)
			keep_end(skb, p, s->fraction);
		return has_own_address(p) || is_local(p, state) ? LOCAL : TO_ALL;
	}
	if (!is_member(s, e.fraction))
		return LOCAL;
	if (is_refused(p))
		bpf_map_delete_elem(&hostlo_tcp, &f);
	if (!set_port(skb, p, DESTINATION, e.port) || !set_port(skb, p, SOURCE, e.visible))
		return NOWHERE;
	return e.fraction;
}

/* send_local_udp sends a datagram to a socket of this fraction, which may serve others' clients, too. */
static __always_inline int send_local_udp(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	struct flow f;

	if (!serves_udp)
		return LOCAL;
	flow_received(&f, p, p->sport);
	if ((!served_flow(s, &f) && !has_lost_port(s, p, s->fraction)) || only_for(skb, p, s->fraction))
		return LOCAL;
	return set_port(skb, p, SOURCE, claim_udp_port(skb, p, s->fraction)) ? LOCAL : NOWHERE;
}

/* answer_udp_client returns the destination of a datagram for a client that this end serves, or TO_ALL. */
static __always_inline int answer_udp_client(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	struct udp_flow *served;
	struct flow f;
	__u32 peer;

	if (!serves_udp || (!is_for_loopback(p) && !answer_from_called(skb, p)))
		return TO_ALL;
	flow_sent(&f, p);
	served = served_flow(s, &f);
	if (!served)
		return TO_ALL;
	peer = served->peer;
	if (!served->cookie)
		served->cookie = bpf_get_socket_cookie(skb);
	return set_port(skb, p, DESTINATION, served->port) ? (int)peer : NOWHERE;
}

/* send_udp returns the destination of a datagram. */
static __always_inline int send_udp(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	int to = answer_udp_client(skb, s, p), known;
	struct udp_flow *flow;
	struct flow f;

	if (to != TO_ALL)
		return to;
	if (p->own == OWN_DESTINATION)
		return LOCAL;
	if (has_udp_claims) {
		flow_sent(&f, p);
		flow = bpf_map_lookup_elem(&hostlo_udp, &f);
		to = answer_elsewhere(skb, p, flow ? flow->peer : 0);
		if (to != TO_ALL)
			return to;
	}
	if (has_udp_socket(skb, p, p->sport))
		return send_local_udp(skb, s, p);
	flow_sent(&f, p);
	flow = bpf_map_lookup_elem(&hostlo_udp, &f);
	known = use_udp_flow(skb, &f, flow);
	if (known) {
		if (others(s) & bit(flow->peer))
			return flow->peer;
		to = only_candidate(s, &f);
		if (to != TO_ALL)
			return to;
	}
	if (!awaited(s))
		return LOCAL;
	count_udp_refusals(s, &f, !known);
	return TO_ALL;
}

/*
 * send_icmp returns the destination of a "port unreachable": the sender of the packet.
 * A flow without a server is of no use after that.
 */
static __always_inline int send_icmp(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	struct udp_flow *udp;
	struct end *tcp, e = {};
	struct flow f;

	flow_sent(&f, p);
	if (p->protocol == IPPROTO_UDP) {
		udp = bpf_map_lookup_elem(&hostlo_udp, &f);
		if (udp) {
			e.fraction = udp->peer;
			e.port = udp->port;
			if (udp->served && !udp->cookie)
				bpf_map_delete_elem(&hostlo_udp, &f);
		}
	} else {
		tcp = bpf_map_lookup_elem(&hostlo_tcp, &f);
		if (tcp)
			e = *tcp;
	}
	if (!is_member(s, e.fraction))
		return LOCAL;
	return set_port(skb, p, DESTINATION, e.port) ? (int)e.fraction : NOWHERE;
}

static __always_inline int destination(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	if (p->icmp)
		return send_icmp(skb, s, p);
	if (p->protocol == IPPROTO_TCP)
		return send_tcp(skb, s, p);
	return send_udp(skb, s, p);
}

SEC("tc")
int leave_lo(struct __sk_buff *skb)
{
	struct segment *s = this_segment();
	struct packet p = {};
	int to;

	if (!s || !others(s) || !read_packet(skb, &p, 1))
		return TC_ACT_UNSPEC;
	to = destination(skb, s, &p);
	if (to == LOCAL || to == (int)s->fraction)
		return TC_ACT_UNSPEC;
	if (to == NOWHERE || !hide_addresses(skb, &p) || !raise_hop_limit(skb, &p))
		return TC_ACT_SHOT;
	return send_by_nic(skb, s, to);
}

/*
 * accept_syn accepts a SYN, under the port at which its client is seen: a listener
 * accepts or ignores it, and without one the kernel refuses it.
 */
static __always_inline int accept_syn(struct __sk_buff *skb, const struct segment *s, struct packet *p, int to_all,
				      __u32 from)
{
	__be16 port;

	if (!to_all) {
		if (is_returned(p, from))
			return ASK_ALL;
		if (p->returned)	/* too late: TCP has repeated it, to all */
			return DROP;
		if (!has_listener(skb, p))
			return RETURN;
	}
	port = claim_port(skb, p, from, 0);
	if (!port)
		return REJECT;
	return set_port(skb, p, SOURCE, port) ? ACCEPT : DROP;
}

/* accept_answer is for a socket that has sent a SYN. The first to accept becomes the other end. */
static __always_inline int accept_answer(const struct segment *s, const struct packet *p, const struct flow *f, __u32 from)
{
	if (is_refused(p))
		return tcp_refused(s, f, p->ack - 1, from) ? ACCEPT : DROP;
	if (p->flags & TCP_SYN)
		return end_connect(f, from) ? ACCEPT : REJECT;
	return ACCEPT;
}

/*
 * accept_segment is for a connection: it accepts segments of the other end only. A
 * second server that has accepted the connection too gets a reset. Nothing from other
 * fractions is for a connection within this one.
 */
static __always_inline int accept_segment(struct __sk_buff *skb, const struct packet *p, const struct flow *f,
					  const struct end *e, __u32 from)
{
	struct packet answer = reversed(p, p->sport);

	if (e->fraction == from && !e->port)
		return ACCEPT;
	if (e->fraction)
		return p->flags & TCP_SYN ? REJECT : DROP;
	if (is_connected(tcp_state(skb, &answer)))
		return DROP;
	if (!(p->flags & TCP_SYN))
		learn_end(f, from);
	return ACCEPT;
}

/*
 * accept_stray is for a segment without a socket. One that is sent to all is for another
 * fraction. One that is sent to this fraction alone ends a handshake by SYN cookies, or
 * belongs to a closed connection, which the kernel resets.
 */
static __always_inline int accept_stray(const struct packet *p, const struct flow *f, const struct end *e, int to_all,
					__u32 from)
{
	if (to_all)
		return DROP;
	if (e->fraction == from && !e->port)
		return ACCEPT;
	if (e->fraction)
		return p->flags & TCP_RST ? DROP : REJECT;
	learn_end(f, from);
	return ACCEPT;
}

/*
 * accept_tcp finds the port at which the sender is seen. The lookup from the NIC does
 * not find sockets bound to lo, so waiting connects are looked up in hostlo_refusals.
 */
static __always_inline int accept_tcp(struct __sk_buff *skb, const struct segment *s, struct packet *p, int to_all,
				      __u32 from)
{
	struct flow f = {};
	struct end e = {};
	__be16 port;
	int state;

	if (is_syn(p))
		return accept_syn(skb, s, p, to_all, from);
	state = end_at(skb, p, p->sport, &f, &e);
	if (state == BPF_TCP_SYN_SENT)
		return accept_answer(s, p, &f, from);
	if (!is_connected(state) && is_waiting(&f, p->ack - 1))
		return accept_answer(s, p, &f, from);
	if (e.fraction != from || e.port) {
		port = claimed_port(skb, p, from);
		if (port)
			return set_port(skb, p, SOURCE, port) ? ACCEPT : DROP;
	}
	if (is_connected(state))
		return accept_segment(skb, p, &f, &e, from);
	return accept_stray(p, &f, &e, to_all, from);
}

/*
 * accept_udp_refusal is for a refusal of a datagram of this fraction's client, or of its
 * server, to a client that may be seen at another port.
 */
static __always_inline int accept_udp_refusal(struct __sk_buff *skb, const struct segment *s, struct packet *p,
					      __u32 from)
{
	struct udp_flow *known;
	struct flow f;
	__be16 port;

	flow_received(&f, p, p->sport);
	known = bpf_map_lookup_elem(&hostlo_udp, &f);
	if (has_udp_claims && (!known || !known->peer)) {
		port = forget_client(p, from);
		if (port)
			return set_port(skb, p, SOURCE, port);
	}
	if (known && known->served && known->peer != from) {
		port = visible_udp_port(skb, p, from, 0);
		if (!port)
			return DROP;
		flow_received(&f, p, port);
		if (!set_port(skb, p, SOURCE, port))
			return DROP;
	}
	return udp_refused(s, &f, from);
}

/*
 * accept_icmp is for a refusal. A packet filter may refuse TCP in this way too, also on
 * an established connection.
 */
static __always_inline int accept_icmp(struct __sk_buff *skb, const struct segment *s, struct packet *p, __u32 from)
{
	struct flow f = {};
	struct end e = {};
	__be16 port;

	if (p->protocol == IPPROTO_UDP)
		return accept_udp_refusal(skb, s, p, from);
	end_at(skb, p, p->sport, &f, &e);
	if (is_waiting(&f, p->seq))
		return tcp_refused(s, &f, p->seq, from);
	if (e.fraction == from && !e.port)
		return ACCEPT;
	port = claimed_port(skb, p, from);
	return port && set_port(skb, p, SOURCE, port) ? ACCEPT : DROP;
}

/*
 * accept_datagram accepts every datagram: if the fraction has no socket for it, the kernel
 * refuses it. But one that was sent to a server here that has gone is returned, and its
 * sender's fraction sends it to all: the server may have moved.
 */
static __always_inline int accept_datagram(struct __sk_buff *skb, const struct segment *s, struct packet *p, int to_all,
					   __u32 from)
{
	__be16 port;
	int gone;

	if (p->returned)
		return !to_all && take_back(s, p, from) ? ASK_ALL : DROP;
	port = learn_udp_peer(skb, s, p, from);
	gone = has_gone(skb, p, port);	/* also for one sent to all: the server may go after it */
	if (!to_all && gone)
		return RETURN;
	if (!set_port(skb, p, SOURCE, port))
		return DROP;
	if (is_for_alias(p))
		keep_called(p, p->sport);
	return ACCEPT;
}

/* verdict is the verdict on a packet. */
static __always_inline int verdict(struct __sk_buff *skb, const struct segment *s, struct packet *p, int to_all,
				   __u32 from)
{
	if (p->icmp)
		return accept_icmp(skb, s, p, from);
	if (p->protocol == IPPROTO_TCP)
		return accept_tcp(skb, s, p, to_all, from);
	return accept_datagram(skb, s, p, to_all, from);
}

/* give_back answers a packet that is not accepted, or drops it. */
static __always_inline int give_back(struct __sk_buff *skb, const struct segment *s, struct packet *p, int result,
				     __u32 from)
{
	if (result == DROP || !hide_addresses(skb, p))
		return TC_ACT_SHOT;
	switch (result) {
	case REJECT:
		return reject(skb, s, p, from);
	case RETURN:
		return mark_returned(skb, p, 1) ? send_by_nic(skb, s, from) : TC_ACT_SHOT;
	case ASK_ALL:
		return mark_returned(skb, p, 0) ? send_by_nic(skb, s, TO_ALL) : TC_ACT_SHOT;
	}
	return TC_ACT_SHOT;
}

SEC("tc")
int enter_nic(struct __sk_buff *skb)
{
	struct segment *s = this_segment();
	struct ethhdr eth;
	struct packet p = {};
	__u32 from;
	int result;

	if (!s || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) < 0 || !is_for_us(s, &eth))
		return TC_ACT_SHOT;
	if (eth.h_proto == bpf_htons(MEMBERSHIP_PROTOCOL)) {
		result = update_members(skb, s, &eth);
		if (result != NO_UPDATE)
			answer_reflector(skb, s);
		if (result == UPDATED_FEWER)
			refuse_waiting(skb, s);
		return TC_ACT_SHOT;
	}
	from = mac_fraction(eth.h_source);	/* others() excludes this fraction's own echo */
	if (from > MAX_FRACTIONS || !(others(s) & bit(from)))
		return TC_ACT_SHOT;
	if (!read_packet(skb, &p, 0))
		return TC_ACT_SHOT;
	result = has_strangers ? answer(s, &p, from) : ACCEPT;
	if (result == SEND_OUTSIDE)
		return send_outside(skb, &p);
	if (result != ACCEPT)
		return give_back(skb, s, &p, result, from);
	if (!restore_addresses(skb, &p))
		return TC_ACT_SHOT;
	result = verdict(skb, s, &p, eth.h_dest[0] & 1, from);
	return result == ACCEPT ? put_into_lo(skb) : give_back(skb, s, &p, result, from);
}

/* enter_pod is for packets from outside of the pod. They stay, unless they are for another fraction. */
SEC("tc")
int enter_pod(struct __sk_buff *skb)
{
	struct segment *s = this_segment();
	struct packet p = {};
	int to;

	if (!s || !others(s) || skb->pkt_type != PACKET_HOST || !read_packet(skb, &p, 1))
		return TC_ACT_UNSPEC;
	if (p.icmp || p.own != (OWN_SOURCE | OWN_DESTINATION))
		return TC_ACT_UNSPEC;
	to = call(skb, s, &p);
	if (to == LOCAL)
		return TC_ACT_UNSPEC;
	if (to == NOWHERE || !hide_call(skb, &p))
		return TC_ACT_SHOT;
	return send_by_nic(skb, s, to);
}

/* Programs with this licence may call all helpers that are used. */
char __license[] SEC("license") = "Apache-2.0";
