/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside.h - clients outside of the pod. What they send to an address of this fraction
 * that no socket here accepts goes to the fraction that accepts it, with aliases for both
 * addresses. That fraction answers this one, which answers the client.
 */
#pragma once

/* The pod's addresses in this fraction, IPv4's mapped into IPv6, and the smallest MTUs of their links and routes. Join sets them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct in6_addr);
	__type(value, __u32);
} hostlo_addresses SEC(".maps");

/* Fractions that serve clients outside, by the flow between their aliases. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct flow);
	__type(value, __u32);
} hostlo_outside SEC(".maps");

#define PACKET_HOST 0		/* from linux/if_packet.h: sent to this link alone */
#define ASKS_PER_SECOND 2000	/* of all fractions, for clients outside; connects of the pod have the rest */
#define STRANGER_TRIES 4	/* aliases of a client */

__u32 has_strangers;		/* a client outside has called */
__u64 asked_since;		/* ns */
__u64 asked;

/* may_ask bounds what clients outside can have sent to all fractions. */
static __always_inline int may_ask(void)
{
	__u64 now = bpf_ktime_get_ns();

	if (now - asked_since > SECOND) {
		asked_since = now;
		asked = 0;
	}
	return __sync_fetch_and_add(&asked, 1) < ASKS_PER_SECOND;
}

/* mtu_of_address returns 0 if the packet's address at an end is not the pod's. */
static __always_inline __u32 mtu_of_address(const struct packet *p, int end)
{
	struct in6_addr a = address_at(p, end);
	__u32 *mtu = bpf_map_lookup_elem(&hostlo_addresses, &a);

	return mtu ? *mtu : 0;
}

static __always_inline __be32 stranger_candidate(const struct alias *first, __be32 address, __u32 try)
{
	__u32 hash = mix(address ^ try << 24);

	if (!try)
		return first->alias;
	return first->ipv6 ? hash : bpf_htonl(0x7f000000 | ALIAS | (hash & OWN_PART));
}

/*
 * stranger returns the alias of a client outside, or 0. If it has none, stranger finds it
 * a free one, if it comes by a link.
 */
__noinline int stranger(const struct packet *p, __u32 link)
{
	struct alias first, a;
	struct stranger *known, new = {.link = link};

	if (!p)
		return 0;
	new.address = address_at(p, SOURCE);
	first = a = own_alias_at(p, SOURCE);
#pragma unroll /* Linux 6.1 takes a loop that ends with a call for an endless one */
	for (__u32 try = 0; try < STRANGER_TRIES; try++) {
		a.alias = stranger_candidate(&first, p->saddr, try);
		known = bpf_map_lookup_elem(&hostlo_strangers, &a);
		if (known && is_same_address(&known->address, &new.address)) {
			if (link)
				known->link = link;
			return a.alias;
		}
		if (!link || known || !a.alias || bpf_map_lookup_elem(&hostlo_aliases, &a))
			continue;
		if (!bpf_map_update_elem(&hostlo_strangers, &a, &new, BPF_NOEXIST))
			return a.alias;
	}
	return 0;
}

/* call_flow returns whether the client has an alias, and fills the flow between the aliases. */
static __always_inline int call_flow(const struct packet *p, __u32 link, struct flow *f)
{
	flow_sent(f, p);
	f->here = stranger(p, link);
	f->there = own_alias_at(p, DESTINATION).alias;
	return f->here != 0;
}

/* call_syn returns where to send a client's SYN. The kernel accepts it if there is a listener here. */
static __always_inline int call_syn(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	int state = tcp_state(skb, p), to;
	struct refusal *r;
	struct flow f;

	if (!awaited(s) || (state != NO_SOCKET && (state != BPF_TCP_TIME_WAIT || has_listener(skb, p)))) {
		if (has_strangers && call_flow(p, 0, &f))
			bpf_map_delete_elem(&hostlo_outside, &f);
		return LOCAL;
	}
	if (!call_flow(p, skb->ifindex, &f))
		return NOWHERE;
	has_strangers = 1;
	bpf_map_delete_elem(&hostlo_outside, &f);
	to = begin_connect(s, &f, p->seq);
	if (to == TO_ALL && !may_ask()) {
		bpf_map_delete_elem(&hostlo_refusals, &f);
		return NOWHERE;
	}
	r = bpf_map_lookup_elem(&hostlo_refusals, &f);
	if (r)
		r->outside = 1;
	return to;
}

/*
 * call_tcp is for segments without SYN. A client that has an answer to its SYN, but not from
 * a server, resets a former connection.
 */
static __always_inline int call_tcp(const struct segment *s, const struct packet *p)
{
	struct flow f;
	__u32 *known;

	if (!has_strangers || !call_flow(p, 0, &f))
		return LOCAL;
	known = bpf_map_lookup_elem(&hostlo_outside, &f);
	if (known)
		return is_member(s, *known) ? (int)*known : LOCAL;
	if (!bpf_map_lookup_elem(&hostlo_refusals, &f))
		return LOCAL;
	return may_ask() ? TO_ALL : NOWHERE;
}

/* call_udp: as the pod's own datagrams, those of a client go to the fraction that answers. */
static __always_inline int call_udp(struct __sk_buff *skb, const struct segment *s, const struct packet *p)
{
	struct refusal *r;
	struct flow f;
	__u32 *known, to;

	if (has_udp_socket(skb, p, p->sport))
		return LOCAL;
	if (!call_flow(p, skb->ifindex, &f))
		return NOWHERE;
	has_strangers = 1;
	known = bpf_map_lookup_elem(&hostlo_outside, &f);
	if (known && others(s) & bit(*known))
		return *known;
	if (!awaited(s))
		return LOCAL;
	to = only_candidate(s, &f);
	if (to == TO_ALL && !may_ask())
		return NOWHERE;
	count_udp_refusals(s, &f, 0);
	r = bpf_map_lookup_elem(&hostlo_refusals, &f);
	if (r)
		r->outside = 1;
	return to;
}

static __always_inline int call(struct __sk_buff *skb, const struct segment *s, struct packet *p)
{
	if (p->protocol == IPPROTO_TCP && !is_syn(p))
		return call_tcp(s, p);
	if (!mtu_of_address(p, DESTINATION))
		return LOCAL;
	return p->protocol == IPPROTO_TCP ? call_syn(skb, s, p) : call_udp(skb, s, p);
}

#define MSS_OPTION 0x0204	/* kind and length */

/*
 * limit_segments keeps client and server from sending segments that do not pass the link
 * of the pod's address, which is at the given end: its MTU is smaller than that of lo. All
 * common systems put the option first.
 */
static __always_inline int limit_segments(struct __sk_buff *skb, const struct packet *p, int end)
{
	__u32 at = p->offset + sizeof(struct tcphdr), mtu = mtu_of_address(p, end), headers = p->ipv6 ? 60 : 40;
	struct {
		__be16 option, size;
	} mss;
	__be16 limit;

	if (bpf_skb_load_bytes(skb, at, &mss, sizeof(mss)) < 0 || mss.option != bpf_htons(MSS_OPTION))
		return 1;
	if (mtu <= headers || bpf_ntohs(mss.size) <= mtu - headers)
		return 1;
	limit = bpf_htons(mtu - headers);
	return bpf_l4_csum_replace(skb, p->check, mss.size, limit, sizeof(limit)) == 0 &&
	       bpf_skb_store_bytes(skb, at + 2, &limit, sizeof(limit), 0) == 0;
}

/* hide_call replaces the addresses of a client's packet by aliases. */
__noinline int hide_call(struct __sk_buff *skb, struct packet *p)
{
	__be32 alias;

	if (!p || (is_syn(p) && !limit_segments(skb, p, DESTINATION)))
		return 0;
	alias = stranger(p, 0);
	return alias && set_alias(skb, p, SOURCE, alias) && hide_address(skb, p, DESTINATION);
}

/* answer_tcp is the verdict on what a fraction answers a client. */
static __always_inline int answer_tcp(const struct segment *s, const struct packet *p, const struct flow *f, __u32 from)
{
	__u32 *known = bpf_map_lookup_elem(&hostlo_outside, f), isn = p->icmp ? p->seq : p->ack - 1;
	struct address a = there(f);

	if ((p->icmp || is_refused(p)) && is_waiting(f, isn))
		return tcp_refused(s, f, isn, from) ? ACCEPT : DROP;
	if (known || p->icmp || !(p->flags & TCP_SYN)) {
		if (known && *known == from)
			return ACCEPT;
		if (known)
			return p->flags & TCP_SYN ? REJECT : DROP;
		return ACCEPT;
	}
	if (!is_waiting(f, isn))
		return REJECT;
	bpf_map_delete_elem(&hostlo_refusals, f);
	bpf_map_update_elem(&hostlo_outside, f, &from, BPF_ANY);
	bpf_map_update_elem(&hostlo_listeners, &a, &from, BPF_ANY);
	return ACCEPT;
}

static __always_inline int answer_udp(const struct segment *s, const struct packet *p, const struct flow *f, __u32 from)
{
	__u32 *known = bpf_map_lookup_elem(&hostlo_outside, f);
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	if (p->icmp) {
		if (known && others(s) & bit(*known)) {
			if (*known != from)
				return DROP;
			bpf_map_delete_elem(&hostlo_outside, f);
			bpf_map_delete_elem(&hostlo_refusals, f);
			return ACCEPT;
		}
		if (!r)
			return DROP;
		r->since = bpf_ktime_get_ns();
		return add_refusal(s, f, r, from) ? ACCEPT : DROP;
	}
	if (known && *known == from)
		return ACCEPT;
	bpf_map_delete_elem(&hostlo_refusals, f);
	bpf_map_update_elem(&hostlo_outside, f, &from, BPF_ANY);
	return ACCEPT;
}

/* is_outside: one address is an alias of a client outside, and the other one of this fraction's. */
static __always_inline struct stranger *is_outside(const struct packet *p, int client)
{
	struct alias a = alias_at(p, !client);

	if (!bpf_map_lookup_elem(&hostlo_aliases, &a))
		return 0;
	a = alias_at(p, client);
	return bpf_map_lookup_elem(&hostlo_strangers, &a);
}

/* send_outside sends an answer by the client's link. The kernel finds the next hop. */
__noinline int send_outside(struct __sk_buff *skb, struct packet *p)
{
	struct stranger *client;
	struct in6_addr address;
	__u8 macs[2 * ETH_ALEN] = {};
	struct alias a;
	__u32 link;

	if (!p)
		return TC_ACT_SHOT;
	a = alias_at(p, DESTINATION);
	client = bpf_map_lookup_elem(&hostlo_strangers, &a);
	if (!client)
		return TC_ACT_SHOT;
	address = client->address;
	link = client->link;
	if (!set_address(skb, p, DESTINATION, &address) || !restore_address(skb, p, SOURCE) ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return TC_ACT_SHOT;
	if (p->protocol == IPPROTO_TCP && p->flags & TCP_SYN && !p->icmp && !limit_segments(skb, p, SOURCE))
		return TC_ACT_SHOT;
	return bpf_redirect_neigh(link, 0, 0, 0);
}

/*
 * answer is the verdict on a packet for a client outside: SEND_OUTSIDE instead of ACCEPT. It
 * is ACCEPT for other packets, also between the same aliases: this fraction may call itself
 * by the address of another one.
 */
__noinline int answer(const struct segment *s, const struct packet *p, __u32 from)
{
	struct flow f;
	int result;

	if (!s || !p)
		return DROP;
	if (is_syn(p) && !p->icmp)
		return !is_outside(p, SOURCE) || !is_returned(p, from) ? ACCEPT : may_ask() ? ASK_ALL : DROP;
	if (!is_outside(p, DESTINATION))
		return ACCEPT;
	flow_received(&f, p, p->sport);
	if (!bpf_map_lookup_elem(&hostlo_outside, &f) && !bpf_map_lookup_elem(&hostlo_refusals, &f))
		return ACCEPT;
	result = p->protocol == IPPROTO_UDP ? answer_udp(s, p, &f, from) : answer_tcp(s, p, &f, from);
	return result == ACCEPT ? SEND_OUTSIDE : result;
}
