/* SPDX-License-Identifier: Apache-2.0 */
/* packet.h - parses packets of the pod's localhost. */
#pragma once

/* From linux/icmp.h, which needs the C library. */
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMP_LENGTH 8		/* of its header and ICMPv6's */

#define ICMP_CHECK 2		/* offsets of the checksum in a header */
#define TCP_CHECK 16
#define UDP_CHECK 6

#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_RETURNED 0x08	/* a reserved bit in the byte of the header's length: returned to its sender */

/* Offsets of headers after an IP header without options. */
#define USUAL4 (ETH_HLEN + sizeof(struct iphdr))
#define USUAL6 (ETH_HLEN + sizeof(struct ipv6hdr))

#define OWN_SOURCE 1
#define OWN_DESTINATION 2

/*
 * A TCP segment, a UDP datagram, or an ICMP "port unreachable", whose source is the
 * destination of the packet that it quotes. An IPv6 address is here a number, which is 0
 * for ::1 and part of the address's alias (alias.h) otherwise.
 */
struct packet {
	__be32 saddr, daddr;
	__be16 sport, dport;
	__u8 protocol;		/* of the quoted packet, in an ICMP packet */
	__u8 ipv6;
	__u8 icmp;
	__u8 flags;		/* of TCP */
	__u8 own;		/* addresses that are neither loopback's nor aliases: OWN_SOURCE, OWN_DESTINATION */
	__u8 returned;		/* returned to its sender: TCP_RETURNED, or a datagram without a time to live */
	__u8 pad[2];
	__u32 offset;		/* of TCP's or UDP's header, also of the quoted one */
	__u32 check;		/* offset of the checksum: TCP's, UDP's, or ICMP's */
	__u32 quoted;		/* offset of the quoted IP header */
	__u32 seq, ack;		/* of TCP; seq is the quoted packet's in an ICMP packet */
	struct in6_addr saddr6, daddr6;	/* of IPv6 */
};

static __always_inline int is_syn(const struct packet *p)
{
	return p->protocol == IPPROTO_TCP && (p->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* is_for_sender: both ends are one, so what answers is the client itself. */
static __always_inline int is_for_sender(const struct packet *p)
{
	return p->sport == p->dport && p->saddr == p->daddr;
}

/* is_refused: a kernel without a listener has answered a SYN. */
static __always_inline int is_refused(const struct packet *p)
{
	return (p->flags & (TCP_SYN | TCP_RST | TCP_ACK)) == (TCP_RST | TCP_ACK) && p->seq == 0;
}

/* load loads bytes at a constant offset. It calls the helper only for what is not at hand. */
static __always_inline long load(struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + offset + size > end)
		return bpf_skb_load_bytes(skb, offset, to, size);
	__builtin_memcpy(to, data + offset, size);
	return 0;
}

/* read_ports parses the start of a TCP or UDP header. */
static __always_inline int read_ports(struct __sk_buff *skb, __u32 offset, struct packet *p)
{
	struct {
		__be16 source, dest;
		__be32 seq, ack;
		__u8 length, flags;
	} h = {};

	if (p->protocol == IPPROTO_TCP) {
		if ((offset == USUAL4 ? load(skb, USUAL4, &h, 14) : offset == USUAL6 ? load(skb, USUAL6, &h, 14) :
		     bpf_skb_load_bytes(skb, offset, &h, 14)) < 0)
			return 0;
	} else if (p->protocol == IPPROTO_UDP) {
		if ((offset == USUAL4 ? load(skb, USUAL4, &h, 4) : offset == USUAL6 ? load(skb, USUAL6, &h, 4) :
		     bpf_skb_load_bytes(skb, offset, &h, 4)) < 0)
			return 0;
	} else {
		return 0;
	}
	p->offset = offset;
	p->check = offset + (p->protocol == IPPROTO_TCP ? TCP_CHECK : UDP_CHECK);
	p->sport = h.source;
	p->dport = h.dest;
	p->seq = bpf_ntohl(h.seq);
	p->ack = bpf_ntohl(h.ack);
	p->flags = h.flags;
	p->returned = h.length & TCP_RETURNED;
	return 1;
}

/*
 * read_quoted_ports parses the first eight bytes of a quoted header, which every ICMP
 * packet has, and reverses the direction.
 */
static __always_inline int read_quoted_ports(struct __sk_buff *skb, __u32 offset, struct packet *p)
{
	struct {
		__be16 source, dest;
		__be32 seq;
	} h;

	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, offset, &h, sizeof(h)) < 0)
		return 0;
	p->icmp = 1;
	p->offset = offset;
	p->sport = h.dest;
	p->dport = h.source;
	p->seq = bpf_ntohl(h.seq);
	return 1;
}

static __always_inline int is_loopback4(__be32 address)
{
	return (address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

static __always_inline int is_unicast4(__be32 address)
{
	return address && bpf_ntohl(address) < 0xe0000000;
}

/*
 * read_ipv4_header rejects fragments, of which only the first one has ports, and headers that
 * are too short, which raw sockets may send. own: a packet on lo
 * is between addresses of the pod, which may be others than loopback's.
 */
static __always_inline int read_ipv4_header(struct __sk_buff *skb, __u32 offset, struct iphdr *ip, int own)
{
	if ((offset == ETH_HLEN ? load(skb, ETH_HLEN, ip, sizeof(*ip)) : bpf_skb_load_bytes(skb, offset, ip, sizeof(*ip))) < 0 ||
	    ip->ihl < 5 || ip->frag_off & bpf_htons(0x3fff))
		return 0;
	if (own)
		return is_unicast4(ip->saddr) && is_unicast4(ip->daddr);
	return is_loopback4(ip->saddr) && is_loopback4(ip->daddr);
}

static __always_inline void set_addresses4(struct packet *p, __be32 saddr, __be32 daddr)
{
	p->saddr = saddr;
	p->daddr = daddr;
	p->own = (is_loopback4(saddr) ? 0 : OWN_SOURCE) | (is_loopback4(daddr) ? 0 : OWN_DESTINATION);
}

static __always_inline int read_ipv4_icmp(struct __sk_buff *skb, __u32 offset, struct packet *p, int own)
{
	struct iphdr ip;
	__u8 icmp[2];		/* type, code */

	if (bpf_skb_load_bytes(skb, offset, icmp, sizeof(icmp)) < 0)
		return 0;
	if (icmp[0] != ICMP_DEST_UNREACH || icmp[1] != ICMP_PORT_UNREACH)
		return 0;
	p->check = offset + ICMP_CHECK;
	offset += ICMP_LENGTH;
	if (!read_ipv4_header(skb, offset, &ip, own))
		return 0;
	p->quoted = offset;
	set_addresses4(p, ip.daddr, ip.saddr);
	p->protocol = ip.protocol;
	return read_quoted_ports(skb, offset + ip.ihl * 4, p);
}

static __always_inline int read_ipv4(struct __sk_buff *skb, struct packet *p, int own)
{
	struct iphdr ip;
	__u32 offset;

	if (!read_ipv4_header(skb, ETH_HLEN, &ip, own))
		return 0;
	offset = ETH_HLEN + ip.ihl * 4;
	if (ip.protocol == IPPROTO_ICMP)
		return read_ipv4_icmp(skb, offset, p, own);
	set_addresses4(p, ip.saddr, ip.daddr);
	p->protocol = ip.protocol;
	if (!read_ports(skb, offset, p))
		return 0;
	if (p->protocol == IPPROTO_UDP)
		p->returned = !ip.ttl;
	return 1;
}

static __always_inline int is_loopback6(const struct in6_addr *a)
{
	return !(a->in6_u.u6_addr32[0] | a->in6_u.u6_addr32[1] | a->in6_u.u6_addr32[2]) &&
	       a->in6_u.u6_addr32[3] == bpf_htonl(1);
}

/* IPv6 aliases are in fd68:6f73:746c:6f00::/96, which Join makes local. */
#define ALIAS6_FIRST 0xfd686f73
#define ALIAS6_SECOND 0x746c6f00

static __always_inline int is_alias6(const struct in6_addr *a)
{
	return a->in6_u.u6_addr32[0] == bpf_htonl(ALIAS6_FIRST) && a->in6_u.u6_addr32[1] == bpf_htonl(ALIAS6_SECOND) &&
	       !a->in6_u.u6_addr32[2];
}

/* is_unicast6 excludes link-local addresses, which mean something only on their link. */
static __always_inline int is_unicast6(const struct in6_addr *a)
{
	__u32 first = bpf_ntohl(a->in6_u.u6_addr32[0]);

	return first < 0xff000000 && first >> 22 != 0xfe80 >> 6 &&
	       (first | a->in6_u.u6_addr32[1] | a->in6_u.u6_addr32[2] | a->in6_u.u6_addr32[3]);
}

static __always_inline int read_ipv6_header(struct __sk_buff *skb, __u32 offset, struct ipv6hdr *ip, int own)
{
	if ((offset == ETH_HLEN ? load(skb, ETH_HLEN, ip, sizeof(*ip)) : bpf_skb_load_bytes(skb, offset, ip, sizeof(*ip))) < 0)
		return 0;
	if (is_loopback6(&ip->saddr) && is_loopback6(&ip->daddr))
		return 1;
	if (own)
		return is_unicast6(&ip->saddr) && is_unicast6(&ip->daddr);
	return (is_loopback6(&ip->saddr) || is_alias6(&ip->saddr)) && (is_loopback6(&ip->daddr) || is_alias6(&ip->daddr));
}

static __always_inline __u32 mix(__u32 hash)
{
	hash = (hash ^ hash >> 16) * 0x9e3779b1;
	hash = (hash ^ hash >> 15) * 0x85ebca77;
	return hash ^ hash >> 13;
}

/* number6 is 0 only for ::1. The fraction of an alias gets the number from the alias. */
static __always_inline __be32 number6(const struct in6_addr *a)
{
	__u32 hash = 0;

	if (is_loopback6(a))
		return 0;
	if (is_alias6(a))
		return a->in6_u.u6_addr32[3];
#pragma unroll
	for (int i = 0; i < 4; i++)
		hash = mix(hash ^ a->in6_u.u6_addr32[i]);
	return hash ? hash : 1;
}

static __always_inline int is_own6(const struct in6_addr *a)
{
	return !is_loopback6(a) && !is_alias6(a);
}

static __always_inline void set_addresses6(struct packet *p, const struct in6_addr *saddr, const struct in6_addr *daddr)
{
	p->saddr6 = *saddr;
	p->daddr6 = *daddr;
	if (is_loopback6(saddr) && is_loopback6(daddr)) {
		p->saddr = p->daddr = p->own = 0;
		return;
	}
	p->saddr = number6(saddr);
	p->daddr = number6(daddr);
	p->own = (is_own6(saddr) ? OWN_SOURCE : 0) | (is_own6(daddr) ? OWN_DESTINATION : 0);
}

static __always_inline int read_ipv6_icmp(struct __sk_buff *skb, __u32 offset, struct packet *p, int own)
{
	struct ipv6hdr ip;
	__u8 icmp[2];		/* type, code */

	if (bpf_skb_load_bytes(skb, offset, icmp, sizeof(icmp)) < 0)
		return 0;
	if (icmp[0] != ICMPV6_DEST_UNREACH || icmp[1] != ICMPV6_PORT_UNREACH)
		return 0;
	p->check = offset + ICMP_CHECK;
	offset += ICMP_LENGTH;
	if (!read_ipv6_header(skb, offset, &ip, own))
		return 0;
	p->quoted = offset;
	set_addresses6(p, &ip.daddr, &ip.saddr);
	p->protocol = ip.nexthdr;
	return read_quoted_ports(skb, offset + sizeof(ip), p);
}

/*
 * read_ipv6 skips a hop-by-hop header: the kernel adds one, with the jumbo option, to
 * TCP segments of more than 64 KiB that the device is to segment.
 */
static __always_inline int read_ipv6(struct __sk_buff *skb, struct packet *p, int own)
{
	__u32 offset = ETH_HLEN + sizeof(struct ipv6hdr);
	struct ipv6hdr ip;
	__u8 hop[2];		/* next header, length in 8 bytes beyond the first 8 */

	p->ipv6 = 1;
	if (!read_ipv6_header(skb, ETH_HLEN, &ip, own))
		return 0;
	p->protocol = ip.nexthdr;
	if (p->protocol == IPPROTO_HOPOPTS) {
		if (bpf_skb_load_bytes(skb, offset, hop, sizeof(hop)) < 0)
			return 0;
		p->protocol = hop[0];
		offset += 8 + 8 * hop[1];
	}
	if (p->protocol == IPPROTO_ICMPV6)
		return read_ipv6_icmp(skb, offset, p, own);
	set_addresses6(p, &ip.saddr, &ip.daddr);
	if (!read_ports(skb, offset, p))
		return 0;
	if (p->protocol == IPPROTO_UDP)
		p->returned = !ip.hop_limit;
	return 1;
}

/*
 * read_packet returns whether the packet may pass between fractions. Pings, fragments,
 * other protocols and packets with other than loopback addresses and aliases may not,
 * unless own is set. p is zero before. The verifier
 * checks a global function once, and not at each call, and takes its arguments for
 * unknown.
 */
__noinline int read_packet(struct __sk_buff *skb, struct packet *p, int own)
{
	if (!p)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(skb, p, own);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return read_ipv6(skb, p, own);
	return 0;
}
