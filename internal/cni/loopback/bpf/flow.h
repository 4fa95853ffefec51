/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h - which fraction is at the other end of a connection, and who has refused one. */
#pragma once

#define SECOND 1000000000ull	/* ns */

struct flow {
	__be32 here, there;
	__be16 here_port, there_port;
	__u8 protocol;
	__u8 ipv6;
	__u8 pad[2];
};

/* The peers of UDP flows are apart: they are many, and must not push connections out. */
struct udp_flow {
	__u64 cookie;		/* of the socket here; 0 if it has not sent yet */
	__u32 peer;		/* 0: not known */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct udp_flow);
} hostlo_udp SEC(".maps");

/* The peers of TCP flows that cannot be told from the client's port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct flow);
	__type(value, __u32);
} hostlo_tcp SEC(".maps");

/* Who of those that were asked has answered that nobody is there. */
struct refusal {
	__u64 since;		/* ns: when last asked anew, or refused; of UDP */
	__u32 isn;		/* of the SYN, of TCP */
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

/* connected_to is the fraction that has accepted the connection, or asked for it, or 0. */
static __always_inline __u32 connected_to(const struct flow *f)
{
	__u32 *peer = bpf_map_lookup_elem(&hostlo_tcp, f);

	return peer ? *peer : 0;
}

/* tcp_peer is the fraction at the other end, which may have left, or 0. */
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
 * udp_peer is the fraction that has last sent from the other end, or 0. The owner
 * of an ephemeral port does not count: others may serve there, and a datagram
 * that is not answered is not sent again.
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
 * use_udp_flow says whether the socket that sends is the one that what is known of
 * the flow is about. If not it forgets that: the client has got the port of another.
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
 * ask_all has the refusals of a datagram for all counted. Those of the one before
 * still count, if they are not old.
 */
static __always_inline void ask_all(const struct flow *f, int anew)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f), none = {.since = bpf_ktime_get_ns()};

	if (anew || !r || none.since - r->since > SECOND)
		bpf_map_update_elem(&hostlo_refusals, f, &none, BPF_ANY);
}

/* last_left is the only other fraction that has not refused datagrams of late, or 0. */
static __always_inline __u32 last_left(const struct segment *s, const struct flow *f)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	if (!r || bpf_ktime_get_ns() - r->since > SECOND)
		return 0;
	return only_one(others(s) & ~r->by);
}

/*
 * begin_connect forgets who was at the other end before. A SYN that is for others
 * asks all of them anew.
 */
static __always_inline void begin_connect(const struct flow *f, __u32 isn, int of_others)
{
	struct refusal none = {.isn = isn};

	bpf_map_delete_elem(&hostlo_tcp, f);
	if (of_others)
		bpf_map_update_elem(&hostlo_refusals, f, &none, BPF_ANY);
}

/* end_connect says whether the fraction is the first to accept the connection. */
static __always_inline int end_connect(const struct segment *s, const struct flow *f, __u32 peer)
{
	if (bpf_map_delete_elem(&hostlo_refusals, f) < 0)
		return tcp_peer(s, f) == peer;
	learn_tcp_peer(s, f, peer);
	return 1;
}

/* add_refusal says whether all others have refused by now, and then ends the wait. */
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

/* is_waiting says whether the SYN with this number is unanswered. */
static __always_inline int is_waiting(const struct flow *f, __u32 isn)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	return r && r->isn == isn;
}

/* tcp_refused says whether all others have refused the SYN with this number. */
static __always_inline int tcp_refused(const struct segment *s, const struct flow *f, __u32 isn, __u32 by)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	return r && r->isn == isn && add_refusal(s, f, r, by);
}

/*
 * udp_refused says whether all that the datagram went to have refused it. One that
 * comes when nobody is asked is late, and does not count against what is sent next.
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
