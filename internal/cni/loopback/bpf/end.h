/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end.h - the other ends of TCP connections.
 *
 * Clients of several fractions may have the same port, and connect to the same server.
 * The server's fraction gives all but one of them a visible port, which its kernel takes
 * for the client's: it replaces the port in their packets, and restores it in packets
 * for them. Clients of its own are no exception.
 */
#pragma once

struct end {
	__u32 fraction;		/* 0: unknown */
	__be16 port;		/* the other end's own; 0: the visible one */
	__be16 visible;		/* this end's port as the other end sees it; 0: its own */
	__u64 since;		/* ns: a client has claimed the port, and its SYN is not answered; else 0 */
};

/*
 * The other ends of connections. The kernel sends the packets of a handshake, and
 * resets, without a socket. The oldest entries are evicted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct flow);
	__type(value, struct end);
} hostlo_tcp SEC(".maps");

/* The same, kept by the connection's socket, so that an idle connection is never forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct end);
} hostlo_sockets SEC(".maps");

/* learn_end keeps other translations than those of the flow's former connection. */
static __always_inline void learn_end(const struct flow *f, __u32 fraction)
{
	struct end e = {.fraction = fraction};

	bpf_map_update_elem(&hostlo_tcp, f, &e, BPF_ANY);
}

#define FEW_SEGMENTS 16

/*
 * lasts: the connection has sent some segments. Its socket then keeps the end, which takes
 * longer once than to find it a few times. Short connections do without.
 */
static __always_inline int lasts(struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);

	return tcp && tcp->segs_out > FEW_SEGMENTS;
}

/*
 * end_claim is for the answer to a SYN: the connection has a socket now, which the answer
 * belongs to, unless the listener uses SYN cookies.
 */
static __always_inline void end_claim(struct __sk_buff *skb, struct end *claim)
{
	claim->since = skb->sk ? 0 : bpf_ktime_get_ns();
}

/* end_of finds the other end of the flow of a segment that this fraction sends. */
static __always_inline void end_of(struct __sk_buff *skb, const struct packet *p, const struct flow *f, __u32 fraction,
				   struct end *e)
{
	struct bpf_sock *sk = sender(skb, p);
	struct end *known = 0;

	__builtin_memset(e, 0, sizeof(*e));
	if (sk)
		known = bpf_sk_storage_get(&hostlo_sockets, sk, 0, 0);
	if (known) {
		*e = *known;
		return;
	}
	known = bpf_map_lookup_elem(&hostlo_tcp, f);
	if (!known)
		return;
	if (p->flags & TCP_SYN)
		end_claim(skb, known);
	*e = *known;
	if (sk && (e->fraction != fraction || e->port || e->visible || lasts(sk)))
		bpf_sk_storage_get(&hostlo_sockets, sk, e, BPF_SK_STORAGE_GET_F_CREATE);
}

/* keep_end has the sender's socket keep an end that is not seen at another port. */
static __always_inline void keep_end(struct __sk_buff *skb, const struct packet *p, __u32 fraction)
{
	struct bpf_sock *sk = sender(skb, p);
	struct end e = {.fraction = fraction};

	if (sk && lasts(sk))
		bpf_sk_storage_get(&hostlo_sockets, sk, &e, BPF_SK_STORAGE_GET_F_CREATE);
}

/*
 * end_at finds the other end that is seen at the given source port of a packet, and the
 * flow. It returns the state of this end's socket.  */
__noinline int end_at(struct __sk_buff *skb, const struct packet *p, __u32 sport, struct flow *f, struct end *e)
{
	struct bpf_sock_tuple t;
	struct bpf_sock *sk, *full;
	struct end *known = 0;
	int state = NO_SOCKET;
	struct flow key;	/* Linux 6.1 takes no keys from elsewhere */
	__u32 size;

	if (!p || !f || !e)
		return state;
	size = fill_tuple(&t, p, sport);
	__builtin_memset(e, 0, sizeof(*e));
	flow_received(&key, p, sport);
	*f = key;
	sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (sk) {
		state = sk->state;
		full = bpf_sk_fullsock(sk);
		if (full)
			known = bpf_sk_storage_get(&hostlo_sockets, full, 0, 0);
		if (known)
			*e = *known;
		bpf_sk_release(sk);
	}
	if (e->fraction)
		return state;
	known = bpf_map_lookup_elem(&hostlo_tcp, &key);
	if (known)
		*e = *known;
	return state;
}

__u32 has_claims;		/* a client is or was seen at another port than its own */

static __always_inline int is_same_client(const struct end *a, const struct end *b)
{
	return a->fraction == b->fraction && a->port == b->port;
}

/*
 * may_claim returns whether a client may be seen at a port: no other client is, or has
 * just claimed it, so that its connection has no socket yet. The kernel of this fraction
 * has chosen the port of its own client in view of its own connections. In a fraction
 * without a listener, a client that awaits its refusal has no socket. A handshake that
 * nothing is known of, as its entry was evicted, is taken for the client's: else a repeated
 * SYN would begin another one at another port, and the client could not end either.
 */
static __always_inline int may_claim(int state, const struct end *there, const struct end *client, int own)
{
	if (is_same_client(there, client))
		return 1;
	if (state == BPF_TCP_LISTEN)
		return !there->since || client->since - there->since > SECOND;
	if (there->fraction)
		return 0;
	return state == NO_SOCKET || state == BPF_TCP_NEW_SYN_RECV || (own && !client->port);
}

/*
 * claim has the client seen at the flow's port, unless another processor has just given
 * the port to another client.
 */
static __always_inline int claim(const struct flow *f, const struct end *client)
{
	struct end *known = bpf_map_lookup_elem(&hostlo_tcp, f);
	__u64 since;

	if (!known)
		return bpf_map_update_elem(&hostlo_tcp, f, client, BPF_NOEXIST) == 0;
	since = known->since;
	if (since && client->since - since <= SECOND && !is_same_client(known, client))
		return 0;
	if (__sync_val_compare_and_swap(&known->since, since, client->since) != since)
		return 0;
	known->fraction = client->fraction;
	known->port = client->port;
	known->visible = 0;
	return 1;
}

/*
 * repeated_claim returns the port at which the client of a repeated SYN is seen already, if
 * that is not its own, or 0. A connection has not ended while it has a socket; one by SYN
 * cookies has none yet.
 */
__noinline int repeated_claim(struct __sk_buff *skb, const struct packet *p, __u32 from)
{
	struct end there = {}, client = {.fraction = from};
	struct flow f = {};
	__u64 now = bpf_ktime_get_ns();
	__be16 port;
	int state;

	if (!p)
		return 0;
	client.port = p->sport;
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 1; try < TRIES; try++) {
		port = visible_port(p->sport, from, try);
		state = end_at(skb, p, port, &f, &there);
		if (!is_same_client(&there, &client) || state == NO_SOCKET || state == BPF_TCP_TIME_WAIT)
			continue;
		if (state != BPF_TCP_LISTEN || (there.since && now - there.since <= 4 * SECOND))
			return port;
	}
	return 0;
}

/*
 * claim_port returns the port at which the client that sends a SYN is seen, or 0 if no
 * port is free. own: the client is this fraction's. As a last resort the client gets the
 * port of a connection that has ended, but whose socket the kernel keeps (TIME_WAIT).
 */
__noinline int claim_port(struct __sk_buff *skb, const struct packet *p, __u32 from, int own)
{
	struct end there = {}, client = {.fraction = from};
	struct flow f = {}, ended = {};
	__be16 port;
	int state;

	if (!p)
		return 0;
	if (has_claims) {
		port = repeated_claim(skb, p, from);
		if (port)
			return port;
	}
	client.since = bpf_ktime_get_ns();
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 0; try < TRIES; try++) {
		port = visible_port(p->sport, from, try);
		client.port = try ? p->sport : 0;
		state = end_at(skb, p, port, &f, &there);
		if (state == BPF_TCP_TIME_WAIT && try)
			ended = f;
		if (!may_claim(state, &there, &client, own) || !claim(&f, &client))
			continue;
		if (try)
			has_claims = 1;
		return port;
	}
	if (ended.there_port)
		bpf_map_update_elem(&hostlo_tcp, &ended, &client, BPF_ANY);
	return ended.there_port;
}

/* claimed_port returns the port at which the sender of a packet is seen, or 0 if that is its own. */
__noinline int claimed_port(struct __sk_buff *skb, const struct packet *p, __u32 from)
{
	struct end there = {}, client = {.fraction = from};
	struct flow f = {};
	__be16 port;

	if (!p)
		return 0;
	client.port = p->sport;
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 1; try < TRIES; try++) {
		port = visible_port(p->sport, from, try);
		end_at(skb, p, port, &f, &there);
		if (is_same_client(&there, &client))
			return port;
	}
	return 0;
}

/*
 * claim_own_port is claim_port for the usual SYN: that of a client of this fraction to a listener
 * of this fraction, while no client is seen at another port. It returns whether it is such
 * a SYN, and its client is seen at its own port. state and e are what end_at found there.
 */
static __always_inline int claim_own_port(const struct segment *s, int state, const struct flow *f, const struct end *e)
{
	struct end client = {.fraction = s->fraction};

	if (has_claims || state != BPF_TCP_LISTEN)
		return 0;
	client.since = bpf_ktime_get_ns();
	return may_claim(state, e, &client, 1) && claim(f, &client);
}
