// SPDX-License-Identifier: Apache-2.0
/*
 * loopback.c - one fraction's side of the pod's localhost. leave_lo is at the
 * egress of lo: what no socket of this fraction takes goes out by the segment's
 * NIC. enter_nic is at the ingress of the NIC: what may be for this fraction goes
 * into lo. The kernel's own answers do the rest: a fraction where nobody listens
 * refuses what was sent to all, and is heard when all the others have refused.
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
#include "turn.h"

#define STAYS -1		/* beside TO_ALL and the fractions */

/* What becomes of a packet that comes by the NIC. */
#define DROPPED 0
#define TAKEN 1
#define TURNED_AWAY 2

/*
 * tcp_stays says whether a socket of this fraction takes what has no SYN. A refusal
 * is for one that has sent a SYN only: others may be of the same ports. One in
 * TIME_WAIT is of a former connection if the present one is with another fraction.
 * Where there is but a listener, it can only wait for the end of a handshake by SYN
 * cookies, with a client of this fraction. All else is for another fraction's
 * client, at whose port somebody happens to listen here.
 */
static __always_inline int tcp_stays(const struct segment *s, const struct packet *p, const struct flow *f, int state)
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
 * send_tcp returns where a segment goes. What is for a fraction that has left
 * stays here: the kernel has no socket for it, and resets the connection.
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
		return state == NO_SOCKET ? TO_ALL : STAYS;
	}
	if (tcp_stays(s, p, &f, state))
		return STAYS;
	peer = tcp_peer(s, &f);
	if (!peer || peer == s->fraction)
		return TO_ALL;
	return others(s) & bit(peer) ? (int)peer : STAYS;
}

static __always_inline int send_udp(struct __sk_buff *skb, const struct segment *s, const struct packet *p)
{
	struct flow f;
	__u32 peer;
	int known;

	if (has_udp_socket(skb, p))
		return STAYS;
	flow_sent(&f, p);
	known = use_udp_flow(skb, &f);
	if (known) {
		peer = udp_peer(s, &f);
		if (!peer)
			peer = last_left(s, &f);
		if (peer)
			return peer;
	}
	ask_all(&f, !known);
	return TO_ALL;
}

/* send_icmp returns where "port unreachable" goes: to whom the datagram has come from. */
static __always_inline int send_icmp(const struct segment *s, const struct packet *p)
{
	struct flow f;
	__u32 peer;

	flow_sent(&f, p);
	peer = p->protocol == IPPROTO_UDP ? udp_peer(s, &f) : tcp_peer(s, &f);
	return others(s) & bit(peer) ? (int)peer : STAYS;
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
	return to == STAYS ? TC_ACT_UNSPEC : send_by_nic(skb, s, to);
}

/*
 * take_syn admits every SYN: a listener accepts or ignores it, and where there is
 * none the kernel refuses it. But it must not disturb a connection with another
 * fraction, whose client has bound the same port.
 */
static __always_inline int take_syn(const struct segment *s, const struct flow *f, int state, __u32 from)
{
	__u32 peer = tcp_peer(s, f);

	if (state != NO_SOCKET && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT && peer != from)
		return TURNED_AWAY;
	learn_tcp_peer(s, f, from);
	return TAKEN;
}

/* take_answer is for a socket that has sent a SYN. The first to accept it is the peer. */
static __always_inline int take_answer(const struct segment *s, const struct packet *p, const struct flow *f, __u32 from)
{
	if (is_refused(p))
		return tcp_refused(s, f, p->ack - 1, from) ? TAKEN : DROPPED;
	if (p->flags & TCP_SYN)
		return end_connect(s, f, from) ? TAKEN : TURNED_AWAY;
	return TAKEN;
}

/*
 * take_segment is for a connection: only its peer speaks to it. A second server that
 * has accepted it too is told that it came late.
 */
static __always_inline int take_segment(const struct segment *s, const struct packet *p, const struct flow *f,
					__u32 from)
{
	__u32 peer = tcp_peer(s, f);

	if (peer == from)
		return TAKEN;
	if (peer)
		return p->flags & TCP_SYN ? TURNED_AWAY : DROPPED;
	if (!(p->flags & TCP_SYN))
		learn_tcp_peer(s, f, from);
	return TAKEN;
}

/*
 * take_tcp admits what no socket is found for if it is sent to this fraction alone:
 * it ends a handshake by SYN cookies, or is of a connection that is no more, which
 * the kernel resets. Sent to all it is for another. Sockets that are bound to lo are
 * not found from the NIC, but a connect that waits is known.
 */
static __always_inline int take_tcp(struct __sk_buff *skb, const struct segment *s, const struct packet *p, int to_all,
				    __u32 from)
{
	int state = tcp_state(skb, p);
	struct flow f;

	flow_received(&f, p);
	if (is_syn(p))
		return take_syn(s, &f, state, from);
	if (state == BPF_TCP_SYN_SENT)
		return take_answer(s, p, &f, from);
	if (state != NO_SOCKET && state != BPF_TCP_LISTEN)
		return take_segment(s, p, &f, from);
	if (is_waiting(&f, p->ack - 1))
		return take_answer(s, p, &f, from);
	return !to_all;
}

/*
 * take_icmp is for a refusal. A packet filter may refuse TCP in this way too, also
 * on a connection that is there.
 */
static __always_inline int take_icmp(const struct segment *s, const struct packet *p, __u32 from)
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
 * take says what becomes of the packet. Datagrams go to this fraction's sockets: a
 * fraction without a socket for one refuses it.
 */
static __always_inline int take(struct __sk_buff *skb, const struct segment *s, const struct packet *p, int to_all,
				__u32 from)
{
	struct flow f;

	if (p->icmp)
		return take_icmp(s, p, from);
	if (p->protocol == IPPROTO_TCP)
		return take_tcp(skb, s, p, to_all, from);
	flow_received(&f, p);
	learn_udp_peer(&f, from);
	return TAKEN;
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
		if (take_members(skb, s, &eth))
			refuse_waiting(skb, s);
		return TC_ACT_SHOT;
	}
	from = mac_fraction(eth.h_source);	/* this one's own echo is of no other */
	if (from > MAX_FRACTIONS || !(others(s) & bit(from)))
		return TC_ACT_SHOT;
	if (!read_packet(skb, &p))
		return TC_ACT_SHOT;
	switch (take(skb, s, &p, eth.h_dest[0] & 1, from)) {
	case TAKEN:
		return put_into_lo(skb);
	case TURNED_AWAY:
		return turn_away(skb, s, &p, from);
	}
	return TC_ACT_SHOT;
}

/* Every helper that is called may be by programs of this licence. */
char __license[] SEC("license") = "Apache-2.0";
