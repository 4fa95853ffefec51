/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alias.h - the addresses other than loopback's. Between fractions, a packet has aliases
 * for them: 127.129.2.3 for 10.1.2.3, an address of fd68:6f73:746c:6f00::/96 for an IPv6
 * address. The fraction that owns an address, or has got it from a client outside of the
 * pod (outside.h), replaces it by its alias, and the alias by the address.
 */
#pragma once

#define ALIAS 0x00800000	/* of all IPv4 aliases, in addition to 127 */
#define OWN_PART 0x007fffff	/* of the IPv4 address */

struct alias {
	__be32 alias;		/* IPv4; the last part of an IPv6 address */
	__u32 ipv6;
};

/* The addresses of this fraction whose aliases others have seen, IPv4's mapped into IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct alias);
	__type(value, struct in6_addr);
} hostlo_aliases SEC(".maps");

/* Aliases of clients outside of the pod, which have called this fraction. */
struct stranger {
	struct in6_addr address;
	__u32 link;		/* index of the link by which it calls */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct alias);
	__type(value, struct stranger);
} hostlo_strangers SEC(".maps");

static __always_inline int is_alias4(__be32 address)
{
	return is_loopback4(address) && address & bpf_htonl(ALIAS);
}

static __always_inline struct in6_addr mapped4(__be32 address)
{
	struct in6_addr a = {};

	a.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	a.in6_u.u6_addr32[3] = address;
	return a;
}

static __always_inline struct in6_addr alias6(__be32 number)
{
	struct in6_addr a = {};

	a.in6_u.u6_addr32[0] = bpf_htonl(ALIAS6_FIRST);
	a.in6_u.u6_addr32[1] = bpf_htonl(ALIAS6_SECOND);
	a.in6_u.u6_addr32[3] = number;
	return a;
}

static __always_inline int is_same_address(const struct in6_addr *a, const struct in6_addr *b)
{
	return a->in6_u.u6_addr32[0] == b->in6_u.u6_addr32[0] && a->in6_u.u6_addr32[1] == b->in6_u.u6_addr32[1] &&
	       a->in6_u.u6_addr32[2] == b->in6_u.u6_addr32[2] && a->in6_u.u6_addr32[3] == b->in6_u.u6_addr32[3];
}

static __always_inline struct in6_addr address_at(const struct packet *p, int end)
{
	if (p->ipv6)
		return end == SOURCE ? p->saddr6 : p->daddr6;
	return mapped4(end == SOURCE ? p->saddr : p->daddr);
}

static __always_inline struct alias alias_at(const struct packet *p, int end)
{
	struct alias a = {.alias = end == SOURCE ? p->saddr : p->daddr, .ipv6 = p->ipv6};

	return a;
}

/* own_alias_at is the alias of an own address, which others may not know yet. */
static __always_inline struct alias own_alias_at(const struct packet *p, int end)
{
	struct alias a = alias_at(p, end);

	if (!p->ipv6)
		a.alias = bpf_htonl(0x7f000000 | ALIAS) | (a.alias & bpf_htonl(OWN_PART));
	return a;
}

static __always_inline int set_address4(struct __sk_buff *skb, struct packet *p, int end, __be32 address)
{
	__be32 *field = end == SOURCE ? &p->saddr : &p->daddr, old = *field;
	__u32 source = offsetof(struct iphdr, saddr), destination = offsetof(struct iphdr, daddr);
	__u64 flags = sizeof(address);

	if (!p->icmp)
		flags |= BPF_F_PSEUDO_HDR | (p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	if (bpf_l4_csum_replace(skb, p->check, old, address, flags) < 0 ||
	    bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, address, sizeof(address)) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + (end == SOURCE ? source : destination), &address, sizeof(address), 0) < 0)
		return 0;
	if (p->icmp && bpf_skb_store_bytes(skb, p->quoted + (end == SOURCE ? destination : source), &address,
					   sizeof(address), 0) < 0)
		return 0;
	set_addresses4(p, end == SOURCE ? address : p->saddr, end == SOURCE ? p->daddr : address);
	return 1;
}

/* set_address6: the checksum of ICMPv6 is also over the addresses of the packet, which are those of the quoted one. */
static __always_inline int set_address6(struct __sk_buff *skb, struct packet *p, int end, struct in6_addr *address)
{
	struct in6_addr other = address_at(p, !end), old = address_at(p, end);
	__u32 source = offsetof(struct ipv6hdr, saddr), destination = offsetof(struct ipv6hdr, daddr);
	__u64 flags = BPF_F_PSEUDO_HDR | (!p->icmp && p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__s64 change = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)address, sizeof(*address), 0);

	if (change < 0 || bpf_l4_csum_replace(skb, p->check, 0, change, flags) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + (end == SOURCE ? source : destination), address, sizeof(*address), 0) < 0)
		return 0;
	if (p->icmp && (bpf_l4_csum_replace(skb, p->check, 0, change, 0) < 0 ||
			bpf_skb_store_bytes(skb, p->quoted + (end == SOURCE ? destination : source), address,
					    sizeof(*address), 0) < 0))
		return 0;
	if (end == SOURCE)
		set_addresses6(p, address, &other);
	else
		set_addresses6(p, &other, address);
	return 1;
}

/* set_address replaces an address of the packet, and in the packet that it quotes. */
static __always_inline int set_address(struct __sk_buff *skb, struct packet *p, int end, struct in6_addr *address)
{
	return p->ipv6 ? set_address6(skb, p, end, address) : set_address4(skb, p, end, address->in6_u.u6_addr32[3]);
}

static __always_inline int set_alias(struct __sk_buff *skb, struct packet *p, int end, __be32 alias)
{
	struct in6_addr a = p->ipv6 ? alias6(alias) : mapped4(alias);

	return set_address(skb, p, end, &a);
}

/* hide_address replaces an own address by its alias, unless another address has that. */
static __always_inline int hide_address(struct __sk_buff *skb, struct packet *p, int end)
{
	struct in6_addr address = address_at(p, end), *known;
	struct alias a = own_alias_at(p, end);

	if (!(p->own & (end == SOURCE ? OWN_SOURCE : OWN_DESTINATION)))
		return 1;
	known = bpf_map_lookup_elem(&hostlo_aliases, &a);
	if (known && !is_same_address(known, &address))
		return 0;
	if (!known) {
		bpf_map_update_elem(&hostlo_aliases, &a, &address, BPF_ANY);
		bpf_map_delete_elem(&hostlo_strangers, &a);
	}
	return set_alias(skb, p, end, a.alias);
}

/*
 * refuse_from_called has an ICMPv6 error come from the address that was called: the kernel
 * sends it from another one if that is an alias.
 */
static __always_inline int refuse_from_called(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at = ETH_HLEN + offsetof(struct ipv6hdr, saddr);
	struct in6_addr called = p->saddr6, source;
	__s64 change;

	if (!p->icmp || !p->ipv6)
		return 1;
	if (bpf_skb_load_bytes(skb, at, &source, sizeof(source)) < 0)
		return 0;
	change = bpf_csum_diff((__be32 *)&source, sizeof(source), (__be32 *)&called, sizeof(called), 0);
	return change >= 0 && bpf_l4_csum_replace(skb, p->check, 0, change, BPF_F_PSEUDO_HDR) == 0 &&
	       bpf_skb_store_bytes(skb, at, &called, sizeof(called), 0) == 0;
}

/* hide_addresses is for a packet that leaves. */
__noinline int hide_addresses(struct __sk_buff *skb, struct packet *p)
{
	return p && refuse_from_called(skb, p) && hide_address(skb, p, SOURCE) && hide_address(skb, p, DESTINATION);
}

static __always_inline int restore_address(struct __sk_buff *skb, struct packet *p, int end)
{
	struct alias a = alias_at(p, end);
	struct in6_addr *known, address;

	if (p->ipv6 ? !a.alias : !is_alias4(a.alias))
		return 1;
	known = bpf_map_lookup_elem(&hostlo_aliases, &a);
	if (!known)
		return 1;
	address = *known;
	return set_address(skb, p, end, &address);
}

/* restore_addresses is for a packet that has come. */
__noinline int restore_addresses(struct __sk_buff *skb, struct packet *p)
{
	return p && restore_address(skb, p, SOURCE) && restore_address(skb, p, DESTINATION);
}

/*
 * has_own_address: unless such a packet begins a connection or answers another fraction, it
 * stays. It may answer a client whose packets netfilter has redirected to a server here,
 * and restores the addresses after lo.
 */
static __always_inline int has_own_address(const struct packet *p)
{
	return p->own != 0;
}

/* is_for_alias: the packet is for another fraction's address, or a client outside. */
static __always_inline int is_for_alias(const struct packet *p)
{
	return p->ipv6 ? p->daddr && !(p->own & OWN_DESTINATION) : is_alias4(p->daddr);
}

/* is_for_loopback: the packet is neither for an alias nor an own address. */
static __always_inline int is_for_loopback(const struct packet *p)
{
	return !(p->own & OWN_DESTINATION) && !is_for_alias(p);
}
