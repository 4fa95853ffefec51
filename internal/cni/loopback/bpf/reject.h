/* SPDX-License-Identifier: Apache-2.0 */
/* reject.h - resets connections whose segments must not reach a local socket. */
#pragma once

#define TCP_SEQ 4		/* offsets in TCP's header */
#define TCP_ACK_SEQ 8
#define TCP_FLAGS 12		/* and the header's length */

/* swap_ends keeps the checksums right. */
static __always_inline int swap_ends(struct __sk_buff *skb, const struct packet *p)
{
	__be32 addresses[2] = {p->daddr, p->saddr};
	__be16 ports[2] = {p->dport, p->sport};
	struct in6_addr addresses6[2] = {p->daddr6, p->saddr6};

	if (bpf_skb_store_bytes(skb, p->offset, ports, sizeof(ports), 0) < 0)
		return 0;
	if (p->ipv6)
		return bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), addresses6, sizeof(addresses6), 0) == 0;
	return bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), addresses, sizeof(addresses), 0) == 0;
}

/* replace writes two or four bytes of the TCP header. */
static __always_inline int replace(struct __sk_buff *skb, const struct packet *p, __u32 at, __u32 old, __u32 new,
				   __u32 size)
{
	return bpf_l4_csum_replace(skb, p->offset + TCP_CHECK, old, new, size) == 0 &&
	       bpf_skb_store_bytes(skb, p->offset + at, &new, size, 0) == 0;
}

/*
 * reject turns a SYN, with or without ACK, into the reset that answers it (RFC 9293,
 * section 3.10.7). The options become data, which is ignored: with a timestamp the
 * receiver would drop the reset as an old one.
 */
static __always_inline int reject(struct __sk_buff *skb, const struct segment *s, const struct packet *p, __u32 to)
{
	__u32 seq = is_syn(p) ? 0 : p->ack, ack = is_syn(p) ? p->seq + 1 : 0;
	__u8 flags = is_syn(p) ? TCP_RST | TCP_ACK : TCP_RST;
	__be16 old;

	if (bpf_skb_load_bytes(skb, p->offset + TCP_FLAGS, &old, sizeof(old)) < 0 || !swap_ends(skb, p) ||
	    !replace(skb, p, TCP_SEQ, bpf_htonl(p->seq), bpf_htonl(seq), 4) ||
	    !replace(skb, p, TCP_ACK_SEQ, bpf_htonl(p->ack), bpf_htonl(ack), 4) ||
	    !replace(skb, p, TCP_FLAGS, old, bpf_htons(0x5000 | flags), 2))
		return TC_ACT_SHOT;
	return send_by_nic(skb, s, to);
}

#define USUAL_TTL 64

/* mark_datagram is mark_returned for a datagram, whose time to live becomes 0. */
static __always_inline int mark_datagram(struct __sk_buff *skb, const struct packet *p, int returned)
{
	__u32 at = ETH_HLEN + offsetof(struct iphdr, ttl);
	__u8 ttl = returned ? 0 : USUAL_TTL;
	struct {
		__u8 ttl, protocol;
	} old, new;
	__be16 from, to;

	if (p->ipv6)
		return bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, hop_limit), &ttl, sizeof(ttl), 0) == 0;
	if (bpf_skb_load_bytes(skb, at, &old, sizeof(old)) < 0)
		return 0;
	new = old;
	new.ttl = ttl;
	__builtin_memcpy(&from, &old, sizeof(from));
	__builtin_memcpy(&to, &new, sizeof(to));
	return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), from, to, sizeof(to)) == 0 &&
	       bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0) == 0;
}

/* raise_hop_limit raises a datagram's of 0, which any program may send on lo: it would be taken for a returned one. */
static __always_inline int raise_hop_limit(struct __sk_buff *skb, const struct packet *p)
{
	__u8 one = 1;

	if (!p->ipv6 || p->icmp || p->protocol != IPPROTO_UDP || !p->returned)
		return 1;
	return bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, hop_limit), &one, sizeof(one), 0) == 0;
}

/* mark_returned marks a SYN or a datagram as returned to its sender, or clears the mark. */
static __always_inline int mark_returned(struct __sk_buff *skb, const struct packet *p, int returned)
{
	__be16 old, new;

	if (p->protocol == IPPROTO_UDP)
		return mark_datagram(skb, p, returned);
	if (bpf_skb_load_bytes(skb, p->offset + TCP_FLAGS, &old, sizeof(old)) < 0)
		return 0;
	new = returned ? old | bpf_htons(TCP_RETURNED << 8) : old & ~bpf_htons(TCP_RETURNED << 8);
	return old == new || replace(skb, p, TCP_FLAGS, old, new, sizeof(new));
}
