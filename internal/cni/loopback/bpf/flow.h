/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h - the fraction at the other end of a connection, and refused connects. */
#pragma once

#define SECOND 1000000000ull	/* ns */

struct flow {
	__be32 here, there;
	__be16 here_port, there_port;
	__u8 protocol;
	__u8 ipv6;
	__u8 pad[2];
};

/* The peers of UDP flows. They are many, and must not evict connections from hostlo_tcp. */
struct udp_flow {
	__u64 cookie;		/* of the local socket; 0 before it has sent */
	__u32 peer;		/* 0: unknown */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct udp_flow);
} hostlo_udp SEC(".maps");

/* The peers of TCP flows that do not follow from the client's port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct flow);
	__type(value, __u32);
} hostlo_tcp SEC(".maps");

/* The fractions that have refused a SYN or a datagram that was sent to all. */
struct refusal {
	__u64 since;		/* UDP: when the count started or a refusal came, ns */
	__u32 isn;		/* TCP: of the SYN */
	__u32 by;		/* bit f: fraction f */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow);
	__type(value, struct refusal);
} hostlo_refusals SEC(".maps");

static __always_inline void flow_sent(struct flow *f, const struct packet *p)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->here = p->saddr;
	f->there = p->daddr;
	f->here_port = p->sport;
	f->there_port = p->dport;
	f->protocol = p->protocol;
	f->ipv6 = p->ipv6;
}

static __always_inline void flow_received(struct flow *f, const struct packet *p)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->here = p->daddr;
	f->there = p->saddr;
	f->here_port = p->dport;
	f->there_port = p->sport;
	f->protocol = p->protocol;
	f->ipv6 = p->ipv6;
}

/* connected_to is the fraction that has accepted or opened the connection, or 0. */
static __always_inline __u32 connected_to(const struct flow *f)
{
	__u32 *peer = bpf_map_lookup_elem(&hostlo_tcp, f);

	return peer ? *peer : 0;
}

/* tcp_peer is the fraction at the other end, or 0. It may have left. */
static __always_inline __u32 tcp_peer(const struct segment *s, const struct flow *f)
{
	__u32 peer = connected_to(f);

	return peer ? peer : owner(s, f->there_port);
}

static __always_inline void learn_tcp_peer(const struct segment *s, const struct flow *f, __u32 peer)
{
	if (tcp_peer(s, f) != peer)
		bpf_map_update_elem(&hostlo_tcp, f, &peer, BPF_ANY);
}

/*
 * udp_peer is the fraction that has last sent from the other end, or 0. It is not the
 * owner of an ephemeral port: another fraction may have a server there, and clients do
 * not repeat a datagram.
 */
static __always_inline __u32 udp_peer(const struct segment *s, const struct flow *f)
{
	struct udp_flow *known = bpf_map_lookup_elem(&hostlo_udp, f);

	return known && others(s) & bit(known->peer) ? known->peer : 0;
}

static __always_inline void learn_udp_peer(const struct flow *f, __u32 peer)
{
	struct udp_flow *known = bpf_map_lookup_elem(&hostlo_udp, f), new = {.peer = peer};

	if (!known)
		bpf_map_update_elem(&hostlo_udp, f, &new, BPF_ANY);
	else if (known->peer != peer)
		known->peer = peer;
}

/*
 * use_udp_flow returns whether the flow belongs to the sending socket. If it belongs to
 * a former socket with the same port, use_udp_flow clears the flow.
 */
static __always_inline int use_udp_flow(struct __sk_buff *skb, const struct flow *f)
{
	struct udp_flow *known = bpf_map_lookup_elem(&hostlo_udp, f), new = {};
	__u64 cookie = bpf_get_socket_cookie(skb);

	if (known && known->cookie == cookie)
		return 1;
	if (known && !known->cookie) {
		known->cookie = cookie;
		return 1;
	}
	new.cookie = cookie;
	bpf_map_update_elem(&hostlo_udp, f, &new, BPF_ANY);
	return 0;
}

/*
 * count_udp_refusals starts counting the refusals of a datagram that is sent to all.
 * Recent refusals of the previous datagram still count, unless restart is set.
 */
static __always_inline void count_udp_refusals(const struct flow *f, int restart)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f), none = {.since = bpf_ktime_get_ns()};

	if (restart || !r || none.since - r->since > SECOND)
		bpf_map_update_elem(&hostlo_refusals, f, &none, BPF_ANY);
}

/* only_candidate is the only other fraction without a recent refusal, or 0. */
static __always_inline __u32 only_candidate(const struct segment *s, const struct flow *f)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	if (!r || bpf_ktime_get_ns() - r->since > SECOND)
		return 0;
	return only_one(others(s) & ~r->by);
}

/*
 * begin_connect clears the former peer. For a SYN that is sent to all it starts
 * counting refusals.
 */
static __always_inline void begin_connect(const struct flow *f, __u32 isn, int to_all)
{
	struct refusal none = {.isn = isn};

	bpf_map_delete_elem(&hostlo_tcp, f);
	if (to_all)
		bpf_map_update_elem(&hostlo_refusals, f, &none, BPF_ANY);
}

/* end_connect returns whether the fraction is the first to accept the connection. */
static __always_inline int end_connect(const struct segment *s, const struct flow *f, __u32 peer)
{
	if (bpf_map_delete_elem(&hostlo_refusals, f) < 0)
		return tcp_peer(s, f) == peer;
	learn_tcp_peer(s, f, peer);
	return 1;
}

/* add_refusal returns whether all others have refused, and then ends the count. */
static __always_inline int add_refusal(const struct segment *s, const struct flow *f, struct refusal *r, __u32 by)
{
	__u32 all = others(s);

	by = bit(by);
	by |= __sync_fetch_and_or(&r->by, by);
	if ((by & all) != all)
		return 0;
	bpf_map_delete_elem(&hostlo_refusals, f);
	return 1;
}

/* is_waiting: the SYN with this sequence number has no answer yet. */
static __always_inline int is_waiting(const struct flow *f, __u32 isn)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	return r && r->isn == isn;
}

/* tcp_refused: all others have refused the SYN with this sequence number. */
static __always_inline int tcp_refused(const struct segment *s, const struct flow *f, __u32 isn, __u32 by)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	return r && r->isn == isn && add_refusal(s, f, r, by);
}

/*
 * udp_refused returns whether all receivers of the datagram have refused it. A refusal
 * that comes when none is counted is late, and does not affect the next datagram.
 */
static __always_inline int udp_refused(const struct segment *s, const struct flow *f, __u32 by)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);
	__u32 peer = udp_peer(s, f);

	if (peer) {
		if (peer != by)
			return 0;
		learn_udp_peer(f, 0);
		bpf_map_delete_elem(&hostlo_refusals, f);
		return 1;
	}
	if (!r)
		return 0;
	r->since = bpf_ktime_get_ns();
	return add_refusal(s, f, r, by);
}
