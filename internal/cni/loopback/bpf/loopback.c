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

#include "packet.h"
#include "segment.h"
#include "socket.h"
#include "flow.h"
#include "reset.h"
#include "reject.h"

#define LOCAL -1		/* a destination in addition to TO_ALL and the fractions */

/* Verdicts on a packet from the NIC. */
#define DROP 0
#define ACCEPT 1
#define REJECT 2

/*
 * tcp_is_local returns whether a socket of this fraction accepts a segment without SYN.
 * Only a socket that has sent a SYN accepts a refusal. A socket in TIME_WAIT belongs to
 * a former connection if the present one is with another fraction. If there is only a
 * listener, the segment is for it only at the end of a handshake by SYN cookies, with
 * a client of this fraction. Otherwise the segment is for another fraction's client,
 * and the listener only happens to have the same port.
 */
static __always_inline int tcp_is_local(const struct segment *s, const struct packet *p, const struct flow *f, int state)
{
	__u32 peer;

	if (is_refused(p))
		return state == BPF_TCP_SYN_SENT;
	if (state == BPF_TCP_TIME_WAIT)
		return !connected_to(f);
	if (state != BPF_TCP_LISTEN)
		return state != NO_SOCKET;
	peer = tcp_peer(s, f);
	return !(p->flags & (TCP_SYN | TCP_RST)) && (!peer || peer == s->fraction);
}

/*
 * send_tcp returns the destination of a segment. A segment for a fraction that has left
 * is local: the kernel has no socket for it, and resets the connection.
 */
static __always_inline int send_tcp(struct __sk_buff *skb, const struct segment *s, const struct packet *p)
{
	int state = tcp_state(skb, p);
	struct flow f;
	__u32 peer;

	flow_sent(&f, p);
	if (is_syn(p)) {
		if (state == BPF_TCP_TIME_WAIT && !has_listener(skb, p))
			state = NO_SOCKET;
		begin_connect(&f, p->seq, state == NO_SOCKET);
		return state == NO_SOCKET ? TO_ALL : LOCAL;
	}
	if (tcp_is_local(s, p, &f, state))
		return LOCAL;
	peer = tcp_peer(s, &f);
	if (!peer || peer == s->fraction)
		return TO_ALL;
	return others(s) & bit(peer) ? (int)peer : LOCAL;
}

static __always_inline int send_udp(struct __sk_buff *skb, const struct segment *s, const struct packet *p)
{
	struct flow f;
	__u32 peer;
	int known;

	if (has_udp_socket(skb, p))
		return LOCAL;
	flow_sent(&f, p);
	known = use_udp_flow(skb, &f);
	if (known) {
		peer = udp_peer(s, &f);
		if (!peer)
			peer = only_candidate(s, &f);
		if (peer)
			return peer;
	}
	count_udp_refusals(&f, !known);
	return TO_ALL;
}

/* send_icmp returns the destination of a "port unreachable": the sender of the packet. */
static __always_inline int send_icmp(const struct segment *s, const struct packet *p)
{
	struct flow f;
	__u32 peer;

	flow_sent(&f, p);
	peer = p->protocol == IPPROTO_UDP ? udp_peer(s, &f) : tcp_peer(s, &f);
	return others(s) & bit(peer) ? (int)peer : LOCAL;
}

static __always_inline int destination(struct __sk_buff *skb, const struct segment *s, const struct packet *p)
{
	if (p->icmp)
		return send_icmp(s, p);
	if (p->protocol == IPPROTO_TCP)
		return send_tcp(skb, s, p);
	return send_udp(skb, s, p);
}

SEC("tc")
int leave_lo(struct __sk_buff *skb)
{
	struct segment *s = this_segment();
	struct packet p;
	int to;

	if (!s || !others(s) || !read_packet(skb, &p))
		return TC_ACT_UNSPEC;
	to = destination(skb, s, &p);
	return to == LOCAL ? TC_ACT_UNSPEC : send_by_nic(skb, s, to);
}

/*
 * accept_syn accepts a SYN: a listener accepts or ignores it, and without one the
 * kernel refuses it. But a SYN must not disturb a connection with another fraction,
 * whose client has bound the same port.
 */
static __always_inline int accept_syn(const struct segment *s, const struct flow *f, int state, __u32 from)
{
	__u32 peer = tcp_peer(s, f);

	if (state != NO_SOCKET && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT && peer != from)
		return REJECT;
	learn_tcp_peer(s, f, from);
	return ACCEPT;
}

/* accept_answer is for a socket that has sent a SYN. The first to accept becomes the peer. */
static __always_inline int accept_answer(const struct segment *s, const struct packet *p, const struct flow *f, __u32 from)
{
	if (is_refused(p))
		return tcp_refused(s, f, p->ack - 1, from) ? ACCEPT : DROP;
	if (p->flags & TCP_SYN)
		return end_connect(s, f, from) ? ACCEPT : REJECT;
	return ACCEPT;
}

/*
 * accept_segment is for a connection: it accepts segments of the peer only. A second
 * server that has accepted the connection too gets a reset.
 */
static __always_inline int accept_segment(const struct segment *s, const struct packet *p, const struct flow *f,
					__u32 from)
{
	__u32 peer = tcp_peer(s, f);

	if (peer == from)
		return ACCEPT;
	if (peer)
		return p->flags & TCP_SYN ? REJECT : DROP;
	if (!(p->flags & TCP_SYN))
		learn_tcp_peer(s, f, from);
	return ACCEPT;
}

/*
 * accept_tcp accepts a segment without a socket if it is sent to this fraction alone:
 * it ends a handshake by SYN cookies, or belongs to a closed connection, which the
 * kernel resets. A segment without a socket that is sent to all is for another
 * fraction. The lookup from the NIC does not find sockets bound to lo, so waiting
 * connects are looked up in hostlo_refusals.
 */
static __always_inline int accept_tcp(struct __sk_buff *skb, const struct segment *s, const struct packet *p, int to_all,
				    __u32 from)
{
	int state = tcp_state(skb, p);
	struct flow f;

	flow_received(&f, p);
	if (is_syn(p))
		return accept_syn(s, &f, state, from);
	if (state == BPF_TCP_SYN_SENT)
		return accept_answer(s, p, &f, from);
	if (state != NO_SOCKET && state != BPF_TCP_LISTEN)
		return accept_segment(s, p, &f, from);
	if (is_waiting(&f, p->ack - 1))
		return accept_answer(s, p, &f, from);
	return !to_all;
}

/*
 * accept_icmp is for a refusal. A packet filter may refuse TCP in this way too, also on
 * an established connection.
 */
static __always_inline int accept_icmp(const struct segment *s, const struct packet *p, __u32 from)
{
	struct flow f;

	flow_received(&f, p);
	if (p->protocol == IPPROTO_UDP)
		return udp_refused(s, &f, from);
	if (is_waiting(&f, p->seq))
		return tcp_refused(s, &f, p->seq, from);
	return tcp_peer(s, &f) == from;
}

/*
 * verdict is the verdict on a packet. Every datagram is accepted: if the fraction has
 * no socket for it, the kernel refuses it.
 */
static __always_inline int verdict(struct __sk_buff *skb, const struct segment *s, const struct packet *p, int to_all,
				__u32 from)
{
	struct flow f;

	if (p->icmp)
		return accept_icmp(s, p, from);
	if (p->protocol == IPPROTO_TCP)
		return accept_tcp(skb, s, p, to_all, from);
	flow_received(&f, p);
	learn_udp_peer(&f, from);
	return ACCEPT;
}

SEC("tc")
int enter_nic(struct __sk_buff *skb)
{
	struct segment *s = this_segment();
	struct ethhdr eth;
	struct packet p;
	__u32 from;

	if (!s || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) < 0 || !is_for_us(s, &eth))
		return TC_ACT_SHOT;
	if (eth.h_proto == bpf_htons(MEMBERSHIP_PROTOCOL)) {
		if (update_members(skb, s, &eth))
			refuse_waiting(skb, s);
		return TC_ACT_SHOT;
	}
	from = mac_fraction(eth.h_source);	/* others() excludes this fraction's own echo */
	if (from > MAX_FRACTIONS || !(others(s) & bit(from)))
		return TC_ACT_SHOT;
	if (!read_packet(skb, &p))
		return TC_ACT_SHOT;
	switch (verdict(skb, s, &p, eth.h_dest[0] & 1, from)) {
	case ACCEPT:
		return put_into_lo(skb);
	case REJECT:
		return reject(skb, s, &p, from);
	}
	return TC_ACT_SHOT;
}

/* Programs with this licence may call all helpers that are used. */
char __license[] SEC("license") = "Apache-2.0";
