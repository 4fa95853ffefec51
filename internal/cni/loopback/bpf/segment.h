/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - the segment as this fraction knows it. Package segment is the Go side. */
#pragma once

#define LO 1		/* the index of lo in every network namespace */
#define MAX_FRACTIONS 16	/* numbered from 1; 0 is the reflector */
#define MEMBERSHIP_PROTOCOL 0x88b5
#define NO_FRACTION 255
#define FRACTIONS 0x1fffe	/* the set of all */
#define MEMBERSHIP_MAGIC 0x484c4f31	/* "HLO1" */

/*
 * The settings before joining, for leaving. The programs do not use it. A plugin leaves
 * segments that an earlier version has joined, so no field moves.
 */
struct former {
	__u16 first_port, last_port;	/* of clients; unchanged if the segment has no ports */
	__u32 mtu;
	__u8 route_localnet, accept_local;
	__u8 ipv6_off;		/* disable_ipv6 of the NIC */
	__u8 up;		/* the NIC */
	__u8 lo_clsact, nic_clsact;	/* existed */
	__u8 pad[2];
};

struct segment {
	__u32 members;		/* bit f: fraction f */
	__u32 generation;	/* of members */
	__u32 fraction;		/* this one */
	__u32 nic;		/* index of the link */
	__u16 first_port, ports;	/* 0; earlier versions divided the clients' ports */
	struct former former;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct segment);
} hostlo_segment SEC(".maps");

__u32 silent;			/* members that have not answered the reflector lately: a set */

static __always_inline struct segment *this_segment(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&hostlo_segment, &zero);
}

static __always_inline __u32 bit(__u32 fraction)
{
	return 1u << (fraction & 31);
}

/* others are the other members; none for a fraction that is not a member. */
static __always_inline __u32 others(const struct segment *s)
{
	__u32 members = s->members, me = bit(s->fraction);

	return members & me ? members & ~me : 0;
}

/* awaited are the other members whose refusals count: a VM that hangs sends none. */
static __always_inline __u32 awaited(const struct segment *s)
{
	return others(s) & ~silent;
}

/* only_one is the fraction in a set of one, else 0. */
static __always_inline __u32 only_one(__u32 set)
{
	__u32 fraction = 0;

#pragma unroll
	for (int f = 1; f <= MAX_FRACTIONS; f++)
		if (set == 1u << f)
			fraction = f;
	return fraction;
}

/* mac_fraction is the number in a MAC of the segment, else NO_FRACTION. */
static __always_inline __u32 mac_fraction(const __u8 mac[ETH_ALEN])
{
	if (mac[0] != 0x02 || mac[1] != 0x68 || mac[2] != 0x35 || mac[3] || mac[4])
		return NO_FRACTION;
	return mac[5];
}

/* is_for_us: the frame is sent to this fraction or to all. */
static __always_inline int is_for_us(const struct segment *s, const struct ethhdr *eth)
{
	return eth->h_dest[0] & 1 || mac_fraction(eth->h_dest) == s->fraction;
}

#define NO_UPDATE 0
#define UPDATED 1
#define UPDATED_FEWER 2		/* a fraction has left, or has become silent */

/*
 * update_members takes the members from a membership frame, unless it is older than
 * the present ones. Two concurrent updates do no harm: the reflector repeats the frame.
 */
static __always_inline int update_members(struct __sk_buff *skb, struct segment *s, const struct ethhdr *eth)
{
	__be32 frame[4];		/* magic, generation, members, silent members */
	__u32 generation, members, before = awaited(s);

	if (mac_fraction(eth->h_source) != 0 || bpf_skb_load_bytes(skb, ETH_HLEN, frame, sizeof(frame)) < 0)
		return NO_UPDATE;
	generation = bpf_ntohl(frame[1]);
	members = bpf_ntohl(frame[2]);
	if (frame[0] != bpf_htonl(MEMBERSHIP_MAGIC) || members & ~FRACTIONS)
		return NO_UPDATE;
	if ((__s32)(generation - s->generation) < 0)
		return NO_UPDATE;
	s->members = members;
	s->generation = generation;
	silent = bpf_ntohl(frame[3]);
	return before & ~awaited(s) ? UPDATED_FEWER : UPDATED;
}

/* is_member: the fraction, which may be this one, is in the segment. */
static __always_inline int is_member(const struct segment *s, __u32 fraction)
{
	return fraction && s->members & bit(fraction);
}

#define TO_ALL 0
#define ANSWER_WANTED (ETH_HLEN + 16)	/* in a membership frame; 0 from earlier reflectors */

/*
 * answer_reflector sends a copy of a membership frame back, if the reflector wants that: it finds VMs
 * that hang.
 */
static __always_inline void answer_reflector(struct __sk_buff *skb, const struct segment *s)
{
	__u8 macs[2 * ETH_ALEN] = {0x02, 0x68, 0x35, 0, 0, 0, 0x02, 0x68, 0x35, 0, 0, 0};
	__u8 wanted;

	macs[2 * ETH_ALEN - 1] = s->fraction;
	if (bpf_skb_load_bytes(skb, ANSWER_WANTED, &wanted, sizeof(wanted)) < 0 || !wanted ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return;
	bpf_clone_redirect(skb, s->nic, 0);
}

static __always_inline int send_by_nic(struct __sk_buff *skb, const struct segment *s, __u32 to)
{
	__u8 macs[2 * ETH_ALEN] = {0x02, 0x68, 0x35, 0, 0, 0, 0x02, 0x68, 0x35, 0, 0, 0};

	if (to == TO_ALL)
		__builtin_memset(macs, 0xff, ETH_ALEN);
	else
		macs[ETH_ALEN - 1] = to;
	macs[2 * ETH_ALEN - 1] = s->fraction;
	if (bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(s->nic, 0);
}

/* put_into_lo clears the MACs: on lo the kernel accepts only zero, lo's own. */
static __always_inline int put_into_lo(struct __sk_buff *skb)
{
	__u8 macs[2 * ETH_ALEN] = {};

	if (bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(LO, BPF_F_INGRESS);
}
