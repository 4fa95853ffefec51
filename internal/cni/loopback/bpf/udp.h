/* SPDX-License-Identifier: Apache-2.0 */
/*
 * udp.h - the fractions at the other ends of UDP flows. As for TCP (end.h), a client
 * whose port another one has, too, is seen at another port.
 */
#pragma once

struct udp_flow {
	__u64 cookie;		/* of the local socket; 0 before it has sent */
	__u32 peer;		/* 0: unknown */
	__be16 port;		/* the peer's own; 0: the visible one */
	__u8 served;		/* the peer has begun: this end is the server */
	__u8 found;		/* a socket here has accepted the flow's latest datagram */
};

/* UDP flows are many, and must not evict connections from hostlo_tcp. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct udp_flow);
} hostlo_udp SEC(".maps");

/* The aliases of others' addresses that clients have called, by the client and both ports. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, __be32);
} hostlo_called SEC(".maps");

/*
 * Where servers of this fraction see clients of all fractions, whatever port they call: a
 * server may answer from another one. The key is the port at which a client is seen.
 */
struct udp_client {
	__u32 fraction;
	__be16 port;		/* the client's own; 0: the visible one */
	__u16 contested;	/* a client of another fraction has or had the port, too, and is seen elsewhere */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, struct udp_client);
} hostlo_clients SEC(".maps");

__u32 has_udp_claims;		/* a client is or was seen at another port than its own */
__u32 serves_udp;		/* this fraction has served a client of another one, so most need no lookup of it */

/* keep_called is for a datagram for another fraction's address. */
static __always_inline void keep_called(const struct packet *p, __be16 port)
{
	struct flow f;

	flow_received(&f, p, port);
	f.here = 0;
	bpf_map_update_elem(&hostlo_called, &f, &p->daddr, BPF_ANY);
}

/*
 * answer_from_called has a datagram sent from the address that the client has called: a
 * server on any address answers from the one that the kernel chooses.
 */
__noinline int answer_from_called(struct __sk_buff *skb, struct packet *p)
{
	__be32 *called;
	struct flow f;

	if (!p)
		return 0;
	flow_sent(&f, p);
	f.here = 0;
	called = bpf_map_lookup_elem(&hostlo_called, &f);
	if (!called || (*called == p->saddr && !(p->own & OWN_SOURCE)))
		return 1;
	return set_alias(skb, p, SOURCE, *called);
}

/* client_seen_at is the client of this packet's source address that is seen at a port, or NULL. */
static __always_inline struct udp_client *client_seen_at(const struct packet *p, __be16 port)
{
	struct address a = {.address = p->saddr, .port = port, .ipv6 = p->ipv6};

	return bpf_map_lookup_elem(&hostlo_clients, &a);
}

static __always_inline int is_sender(const struct udp_client *c, const struct packet *p, __be16 seen, __u32 from)
{
	return c->fraction == from && (c->port ? c->port : seen) == p->sport;
}

/* is_of_another: servers see another client at the port. */
static __always_inline int is_of_another(const struct packet *p, __be16 port, __u32 from)
{
	struct udp_client *c = client_seen_at(p, port);

	return c && !is_sender(c, p, port, from);
}

/* keep_client keeps where the sender of a datagram is seen, if a socket here accepts the datagram. */
static __always_inline void keep_client(struct __sk_buff *skb, const struct packet *p, __be16 port, __u32 from, int contested)
{
	struct udp_client *known = client_seen_at(p, port), new = {.fraction = from, .contested = contested};
	struct address a = {.address = p->saddr, .port = port, .ipv6 = p->ipv6};

	new.port = port == p->sport ? 0 : p->sport;
	if ((!known || !is_sender(known, p, port, from)) && has_udp_socket(skb, p, port))
		bpf_map_update_elem(&hostlo_clients, &a, &new, BPF_ANY);
}

/* served_flow is the flow of a server here with a client that is a member, or NULL. */
static __always_inline struct udp_flow *served_flow(const struct segment *s, const struct flow *f)
{
	struct udp_flow *known = bpf_map_lookup_elem(&hostlo_udp, f);

	return known && known->served && is_member(s, known->peer) ? known : 0;
}

/*
 * contest marks the client that has kept the port of the sender, which is seen at another one. It is
 * this fraction's if a socket here has the port, unless another fraction's was marked or is served there.
 */
static __always_inline void contest(struct __sk_buff *skb, const struct segment *s, const struct packet *p, __u32 from)
{
	struct udp_client *c = client_seen_at(p, p->sport), own = {.fraction = s->fraction, .contested = 1};
	struct address a = {.address = p->saddr, .port = p->sport, .ipv6 = p->ipv6};
	struct flow f;

	has_udp_claims = 1;
	if (c && c->contested)
		return;
	flow_received(&f, p, p->sport);
	if (from != s->fraction && !served_flow(s, &f) && gets_udp_answer(skb, p, p->sport))
		bpf_map_update_elem(&hostlo_clients, &a, &own, BPF_ANY);
	else if (c && !is_sender(c, p, p->sport, from))
		c->contested = 1;
}

/*
 * has_lost_port: another fraction's client has kept the sender's port, so servers here see the sender
 * at another one.
 */
static __always_inline int has_lost_port(const struct segment *s, const struct packet *p, __u32 from)
{
	struct udp_client *c;

	if (!has_udp_claims)
		return 0;
	c = client_seen_at(p, p->sport);
	return c && c->contested && c->fraction != s->fraction && !is_sender(c, p, p->sport, from);
}

/*
 * use_udp_flow returns whether the flow, if known, belongs to the sending socket. If it
 * belongs to a former socket with the same port, use_udp_flow clears the flow.
 */
static __always_inline int use_udp_flow(struct __sk_buff *skb, const struct flow *f, struct udp_flow *known)
{
	struct udp_flow new = {};
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
 * visible_udp_port returns the port at which a client is seen whose own port another
 * client has. If it is seen at none, visible_udp_port finds it a free one, if it may. Else
 * it returns 0.
 */
__noinline int visible_udp_port(struct __sk_buff *skb, const struct packet *p, __u32 from, int new_one)
{
	struct udp_flow *known, new = {.peer = from, .served = 1};
	struct flow f = {};
	__be16 port;

	if (!p)
		return 0;
	new.port = p->sport;
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 1; try < TRIES; try++) {
		port = visible_port(p->sport, from, try);
		flow_received(&f, p, port);
		known = bpf_map_lookup_elem(&hostlo_udp, &f);
		if (known && known->served && known->peer == from && known->port == p->sport)
			return port;
		if (!new_one || known || is_of_another(p, port, from) || gets_udp_answer(skb, p, port))
			continue;
		serves_udp = 1;
		bpf_map_update_elem(&hostlo_udp, &f, &new, BPF_ANY);
		return port;
	}
	return 0;
}

/* keep_claim keeps the port at which the sender of a datagram is seen, and which client has the sender's own port. */
__noinline int keep_claim(struct __sk_buff *skb, const struct packet *p, __u32 from, __u32 port)
{
	struct segment *s = this_segment();

	if (!s || !p || !port)
		return 0;
	keep_client(skb, p, port, from, 0);
	contest(skb, s, p, from);
	return port;
}

/*
 * claim_udp_port returns the port at which the sender of a datagram is seen whose own port another
 * client has, or 0 if no port is free. An answer from another port then reaches only the client that it is for.
 */
static __always_inline __be16 claim_udp_port(struct __sk_buff *skb, const struct packet *p, __u32 from)
{
	return keep_claim(skb, p, from, visible_udp_port(skb, p, from, 1));
}

/* is_here: a socket of this fraction accepts the datagram at the given port, or, without one, at its own. */
static __always_inline int is_here(struct __sk_buff *skb, struct packet *p, __be16 port)
{
	__be16 dport = p->dport;
	int found;

	if (port)
		p->dport = port;
	found = has_udp_socket(skb, p, p->sport);
	p->dport = dport;
	return found;
}

/*
 * answer_elsewhere returns the destination of a datagram that a server sends to a client from
 * another port than the client has called, or TO_ALL. Then all clients at the port get it,
 * because it may also be for a server. peer is the other end of the datagram's flow, if known.
 */
__noinline int answer_elsewhere(struct __sk_buff *skb, struct packet *p, __u32 peer)
{
	struct segment *s = this_segment();
	struct udp_client *c;
	struct address a = {};
	__u32 fraction;

	if (!s || !p)
		return TO_ALL;
	a.address = p->daddr;
	a.port = p->dport;
	a.ipv6 = p->ipv6;
	c = bpf_map_lookup_elem(&hostlo_clients, &a);
	if (!c || !(c->port || c->contested) || !is_member(s, c->fraction))
		return TO_ALL;
	fraction = c->fraction;
	if ((peer && peer != fraction) || (fraction == s->fraction && !is_here(skb, p, c->port)))
		return TO_ALL;
	return set_port(skb, p, DESTINATION, c->port) ? (int)fraction : NOWHERE;
}

/*
 * forget_client returns the port at which a client is seen that has refused an answer from
 * elsewhere, and forgets the client. It returns 0 if servers here see no such client.
 */
__noinline int forget_client(const struct packet *p, __u32 from)
{
	struct address a = {};
	struct udp_client *c;
	__be16 port;

	if (!p)
		return 0;
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 0; try < TRIES; try++) {
		port = visible_port(p->sport, from, try);
		c = client_seen_at(p, port);
		if (!c || !is_sender(c, p, port, from) || !(c->port || c->contested))
			continue;
		a.address = p->saddr;
		a.port = port;
		a.ipv6 = p->ipv6;
		bpf_map_delete_elem(&hostlo_clients, &a);
		return port;
	}
	return 0;
}

/* only_for: the packet is for a socket that accepts nothing from other ports. */
static __always_inline int only_for(struct __sk_buff *skb, const struct packet *p, __u32 from)
{
	return has_udp_socket(skb, p, p->sport) && !has_udp_socket(skb, p, visible_port(p->sport, from, 1));
}

/*
 * learn_udp_peer returns the port at which the sender of a datagram is seen. If this end
 * has begun, any fraction may answer: the server may have moved.
 */
static __always_inline __be16 learn_udp_peer(struct __sk_buff *skb, const struct segment *s, const struct packet *p,
					     __u32 from)
{
	struct udp_flow *known, new = {.peer = from, .served = 1};
	struct udp_client *c;
	struct flow f;
	__be16 port = 0;

	flow_received(&f, p, p->sport);
	known = bpf_map_lookup_elem(&hostlo_udp, &f);
	if (known && known->peer == from && !known->port) {
		if (has_udp_claims && known->served) {
			c = client_seen_at(p, p->sport);
			/* forget_client has removed the sender, or contest has put a client of another server in its place */
			if (!c || c->contested)
				keep_client(skb, p, p->sport, from, 1);
		}
		return p->sport;
	}
	if (known && !known->served && known->peer != from && has_lost_port(s, p, from)) {
		port = claim_udp_port(skb, p, from);
		if (port)
			return port;
	}
	if (known && !(known->served && is_member(s, known->peer))) {
		known->peer = from;
		known->port = 0;
		bpf_map_delete_elem(&hostlo_refusals, &f);	/* the others' are late now */
		return p->sport;
	}
	if (known || is_of_another(p, p->sport, from) || gets_udp_answer(skb, p, p->sport)) {
		if (!only_for(skb, p, from))
			port = claim_udp_port(skb, p, from);
		if (port)
			return port;
	}
	serves_udp = 1;
	if (known)
		known->peer = from;
	else
		bpf_map_update_elem(&hostlo_udp, &f, &new, BPF_ANY);
	keep_client(skb, p, p->sport, from, 0);
	return p->sport;
}

/*
 * count_udp_refusals starts counting the refusals of a datagram that is sent to all.
 * Recent refusals of the previous datagram still count, unless restart is set.
 */
static __always_inline void count_udp_refusals(const struct segment *s, const struct flow *f, int restart)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f), none = {.since = bpf_ktime_get_ns()};

	if (r && !restart) {
		if (none.since - r->since <= SECOND)
			return;
		none.asked = only_one(others(s) & ~r->by);
	}
	bpf_map_update_elem(&hostlo_refusals, f, &none, BPF_ANY);
}

/*
 * only_candidate is the only other fraction without a recent refusal, or 0. While
 * refusals are counted again it is the former one, so that a client that gets no answers
 * sends one datagram per second to all.
 */
static __always_inline __u32 only_candidate(const struct segment *s, const struct flow *f)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);
	__u32 left;

	if (!r || bpf_ktime_get_ns() - r->since > SECOND)
		return 0;
	left = others(s) & ~r->by;
	return left & bit(r->asked) ? r->asked : only_one(left);
}

/*
 * udp_refused returns whether all receivers of the datagram have refused it. A refusal
 * that comes when none is counted is late, and does not affect the next datagram.
 */
static __always_inline int udp_refused(const struct segment *s, const struct flow *f, __u32 by)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);
	struct udp_flow *known = bpf_map_lookup_elem(&hostlo_udp, f);

	if (known && others(s) & bit(known->peer)) {
		if (known->peer != by)
			return 0;
		known->peer = 0;
		bpf_map_delete_elem(&hostlo_refusals, f);
		return 1;
	}
	if (!r)
		return 0;
	r->since = bpf_ktime_get_ns();
	return add_refusal(s, f, r, by);
}

/*
 * has_gone: the server here of a datagram has gone since the previous one of the flow. Sockets that are bound to lo are not found, so they do not go.
 */
static __always_inline int has_gone(struct __sk_buff *skb, const struct packet *p, __be16 port)
{
	struct udp_flow *known;
	struct flow f;
	int found, before;

	flow_received(&f, p, port);
	known = bpf_map_lookup_elem(&hostlo_udp, &f);
	if (!known || !known->served)
		return 0;
	found = has_udp_socket(skb, p, port);
	before = known->found;
	if (found != before)
		known->found = found;
	return before && !found;
}

/* take_back returns whether a returned datagram is this fraction's. Then it is sent to all. */
static __always_inline int take_back(const struct segment *s, const struct packet *p, __u32 from)
{
	struct udp_flow *known;
	struct flow f;

	flow_sent(&f, p);
	known = bpf_map_lookup_elem(&hostlo_udp, &f);
	if (!known || known->served || known->peer != from)
		return 0;
	known->peer = 0;
	count_udp_refusals(s, &f, 1);
	return 1;
}
