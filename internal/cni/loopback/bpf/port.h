/* SPDX-License-Identifier: Apache-2.0 */
/* port.h - replaces the port of a packet. */
#pragma once

#define SOURCE 0
#define DESTINATION 1

#define TRIES 16		/* visible ports of one client */
#define FIRST_VISIBLE 1024	/* lower ports are privileged */

/*
 * visible_port is the port that the server of another fraction's client sees: the
 * client's own at the first try.
 */
static __always_inline __be16 visible_port(__be16 port, __u32 fraction, __u32 try)
{
	__u32 hash = (port ^ fraction << 16 ^ try << 24) * 0x9e3779b1;

	if (!try)
		return port;
	hash = (hash ^ hash >> 15) * 0x85ebca77;
	return bpf_htons(FIRST_VISIBLE + (hash ^ hash >> 13) % (65536 - FIRST_VISIBLE));
}

/*
 * set_port writes a port, unless it is 0, and corrects the checksum of the packet. It
 * leaves that of a quoted packet, which nobody verifies. In an ICMP packet the source is
 * the destination of the quoted one.
 */
static __always_inline int set_port(struct __sk_buff *skb, struct packet *p, int end, __be16 port)
{
	__u32 at = p->offset + (end != p->icmp ? 2 : 0);
	__be16 *field = end == SOURCE ? &p->sport : &p->dport;
	__u64 flags = sizeof(port);

	if (!port || port == *field)
		return 1;
	if (p->protocol == IPPROTO_UDP && !p->icmp)
		flags |= BPF_F_MARK_MANGLED_0;	/* 0: no checksum */
	if (bpf_l4_csum_replace(skb, p->check, *field, port, flags) < 0 ||
	    bpf_skb_store_bytes(skb, at, &port, sizeof(port), 0) < 0)
		return 0;
	*field = port;
	return 1;
}
