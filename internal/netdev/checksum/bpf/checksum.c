/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * checksum.c - drops frames that have the host write a checksum into a header.
 *
 * A guest may leave a checksum open, and says in the virtio_net_hdr before the frame where
 * it belongs. The host writes it there when the frame leaves by a device that does not
 * compute checksums: after all filters. The guest determines its value, so that a filter
 * would see one address or type, and the receiver another one.
 *
 * Programs that read the kernel's memory have to be under the GPL, among others.
 */

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CHECKSUM_PARTIAL 3	/* the checksum is open */
#define MOST_EXTENSIONS 6	/* headers between IPv6's and the transport's */

#define TCP_LENGTH 20
#define TCP_CHECK 16
#define UDP_LENGTH 8
#define UDP_CHECK 6
#define ICMPV6_CHECK 2
#define OTHER_LENGTH 8		/* what filters read at most of others, such as ICMP */

/* What is read of the kernel's type. The loader finds the fields in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sk_buff {
	unsigned char *head;
	unsigned char *data;
	__u16 csum_start;	/* from head */
	__u16 csum_offset;	/* of the checksum, from csum_start */
	__u8 ip_summed : 2;
};
#pragma clang attribute pop

/* The frames that were dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* check is where the host is to write: offsets in the frame. */
struct check {
	__u32 from;		/* begin of what is summed up */
	__u32 at;
};

/* beyond: the transport's own checksum, or what no filter reads, such as that of a packet in a tunnel. */
static __always_inline bool beyond(const struct check *c, __u8 protocol, __u32 transport)
{
	__u32 at = c->at - transport;

	if (c->from < transport || c->at < transport)
		return false;
	switch (protocol) {
	case IPPROTO_TCP:
		return at == TCP_CHECK || at >= TCP_LENGTH;
	case IPPROTO_UDP:
		return at == UDP_CHECK || at >= UDP_LENGTH;
	case IPPROTO_ICMPV6:
		return at == ICMPV6_CHECK;
	}
	return at >= OTHER_LENGTH;
}

/* Fragments have no open checksum. */
static __always_inline bool beyond_ipv4(struct __sk_buff *skb, const struct check *c)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) < 0 || ip.ihl < 5 || ip.frag_off & bpf_htons(0x3fff))
		return false;
	return beyond(c, ip.protocol, ETH_HLEN + ip.ihl * 4);
}

static __always_inline bool beyond_ipv6(struct __sk_buff *skb, const struct check *c)
{
	__u32 at = ETH_HLEN + sizeof(struct ipv6hdr);
	struct ipv6hdr ip;
	__u8 extension[2];	/* next header, length in 8 bytes beyond the first 8 */
	__u8 next;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) < 0)
		return false;
	next = ip.nexthdr;
#pragma unroll
	for (int i = 0; i < MOST_EXTENSIONS; i++) {
		if (next == IPPROTO_FRAGMENT || next == IPPROTO_AH)
			return false;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			return beyond(c, next, at);
		if (bpf_skb_load_bytes(skb, at, extension, sizeof(extension)) < 0)
			return false;
		next = extension[0];
		at += 8 + 8 * extension[1];
	}
	return false;
}

static __always_inline bool harmless(struct __sk_buff *skb)
{
	struct sk_buff *kernel = (struct sk_buff *)skb; /* what the argument of such a program is */
	struct check c;

	if (BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) != CHECKSUM_PARTIAL)
		return true;
	c.from = BPF_CORE_READ(kernel, csum_start) - (BPF_CORE_READ(kernel, data) - BPF_CORE_READ(kernel, head));
	c.at = c.from + BPF_CORE_READ(kernel, csum_offset);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return beyond_ipv4(skb, &c);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return beyond_ipv6(skb, &c);
	return false;
}

SEC("tc")
int check_checksum(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u64 *count;

	if (harmless(skb))
		return TC_ACT_UNSPEC;
	count = bpf_map_lookup_elem(&dropped, &zero);
	if (count)
		++*count;
	return TC_ACT_SHOT;
}

char __license[] SEC("license") = "Dual BSD/GPL";
