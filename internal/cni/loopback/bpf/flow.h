/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h - flows between fractions, and connects and datagrams that fractions refuse. */
#pragma once

#define SECOND 1000000000ull	/* ns */

struct flow {
	__be32 here, there;
	__be16 here_port, there_port;
	__u8 protocol;
	__u8 ipv6;
	__u8 pad[2];
};

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

/* flow_received is the flow of a packet whose sender is seen at the given port. */
static __always_inline void flow_received(struct flow *f, const struct packet *p, __be16 sport)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->here = p->daddr;
	f->there = p->saddr;
	f->here_port = p->dport;
	f->there_port = sport;
	f->protocol = p->protocol;
	f->ipv6 = p->ipv6;
}

/* The fractions that have refused a SYN or a datagram that was sent to all. */
struct refusal {
	__u64 since;		/* UDP: when the count started or a refusal came, ns */
	__u32 isn;		/* TCP: of the SYN */
	__u32 by;		/* bit f: fraction f */
	__u32 asked;		/* TCP: the only fraction that got the SYN; UDP: the former candidate; 0: none */
	__u32 outside;		/* the client is not in the pod */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow);
	__type(value, struct refusal);
} hostlo_refusals SEC(".maps");

/* add_refusal returns whether all others have refused, and then ends the count. */
static __always_inline int add_refusal(const struct segment *s, const struct flow *f, struct refusal *r, __u32 by)
{
	__u32 all = awaited(s);

	by = bit(by);
	by |= __sync_fetch_and_or(&r->by, by);
	if ((by & all) != all)
		return 0;
	bpf_map_delete_elem(&hostlo_refusals, f);
	return 1;
}
