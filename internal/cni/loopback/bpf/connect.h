/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.h - connects to other fractions. A SYN is sent to the fraction whose listener
 * has last answered. A fraction without a listener returns a SYN that only it has got,
 * and the client's fraction sends it to all.
 */
#pragma once

struct address {
	__be32 address;		/* IPv4 */
	__be16 port;
	__u16 ipv6;
};

/* The fractions that have listeners, as far as known. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u32);
} hostlo_listeners SEC(".maps");

static __always_inline struct address there(const struct flow *f)
{
	struct address a = {.address = f->there, .port = f->there_port, .ipv6 = f->ipv6};

	return a;
}

/* listener_of returns the fraction to ask for an address, or TO_ALL. */
static __always_inline __u32 listener_of(const struct segment *s, const struct flow *f)
{
	struct address a = there(f);
	__u32 *known = bpf_map_lookup_elem(&hostlo_listeners, &a);

	return known && awaited(s) & bit(*known) ? *known : TO_ALL;
}

/*
 * begin_connect clears the former other end, starts counting refusals, and returns the
 * destination of the SYN. A repeated SYN is sent to all.
 */
static __always_inline __u32 begin_connect(const struct segment *s, const struct flow *f, __u32 isn)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f), new = {.isn = isn};

	if (!r || r->isn != isn)
		new.asked = listener_of(s, f);
	bpf_map_delete_elem(&hostlo_tcp, f);
	bpf_map_update_elem(&hostlo_refusals, f, &new, BPF_ANY);
	return new.asked;
}

/* end_connect returns whether the fraction is the first to accept the connection. */
static __always_inline int end_connect(const struct flow *f, __u32 from)
{
	struct end *known = bpf_map_lookup_elem(&hostlo_tcp, f);
	struct address a = there(f);

	if (known)
		return known->fraction == from;
	bpf_map_delete_elem(&hostlo_refusals, f);
	learn_end(f, from);
	bpf_map_update_elem(&hostlo_listeners, &a, &from, BPF_ANY);
	return 1;
}

/* is_of_syn: the sequence number before an answer's is that of the SYN, or of data that it had (RFC 7413). */
static __always_inline int is_of_syn(const struct refusal *r, __u32 isn)
{
	return isn - r->isn <= 65535;
}

/* is_waiting: the SYN with this sequence number has no answer yet. */
static __always_inline int is_waiting(const struct flow *f, __u32 isn)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);

	return r && is_of_syn(r, isn);
}

/* tcp_refused: all others have refused the SYN with this sequence number. */
static __always_inline int tcp_refused(const struct segment *s, const struct flow *f, __u32 isn, __u32 by)
{
	struct refusal *r = bpf_map_lookup_elem(&hostlo_refusals, f);
	struct address a = there(f);

	if (!r || !is_of_syn(r, isn))
		return 0;
	if (r->asked == by)	/* TCP repeats the SYN, to all */
		bpf_map_delete_elem(&hostlo_listeners, &a);
	return add_refusal(s, f, r, by);
}

/* is_returned: the SYN is this fraction's own, from the only fraction that has got it. */
static __always_inline int is_returned(const struct packet *p, __u32 from)
{
	struct refusal *r;
	struct address a;
	struct flow f;

	flow_sent(&f, p);
	r = bpf_map_lookup_elem(&hostlo_refusals, &f);
	if (!r || r->isn != p->seq || r->asked != from)
		return 0;
	r->asked = TO_ALL;
	a = there(&f);
	bpf_map_delete_elem(&hostlo_listeners, &a);
	return 1;
}
