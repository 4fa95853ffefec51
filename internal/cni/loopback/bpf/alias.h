/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alias.h - the pod's own IPv4 addresses. Each fraction has others. Between fractions a
 * packet on lo has aliases instead, in 127.128.0.0/9: 10.1.2.3 is 127.129.2.3. So a
 * client that calls the pod's own address, or is bound to it, reaches servers of all
 * fractions that listen on any address.
 */
#pragma once

#define ALIAS 0x00800000	/* of all aliases, in addition to 127 */
#define OWN_PART 0x007fffff	/* of the address */

/* The addresses of this fraction whose aliases others have seen, by alias. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __be32);
	__type(value, __be32);
} hostlo_aliases SEC(".maps");

/* alias_of returns what others see, or 0: another address has the alias. */
static __always_inline __be32 alias_of(__be32 address)
{
	__be32 alias = bpf_htonl(0x7f000000 | ALIAS) | (address & bpf_htonl(OWN_PART)), *known;

	if (is_loopback4(address))
		return address;
	known = bpf_map_lookup_elem(&hostlo_aliases, &alias);
	if (known)
		return *known == address ? alias : 0;
	bpf_map_update_elem(&hostlo_aliases, &alias, &address, BPF_ANY);
	return alias;
}

static __always_inline __be32 address_of(__be32 alias)
{
	__be32 *known;

	if (!(alias & bpf_htonl(ALIAS)))
		return alias;
	known = bpf_map_lookup_elem(&hostlo_aliases, &alias);
	return known ? *known : alias;
}

/*
 * has_own_address: unless such a packet begins a connection or answers another fraction, it
 * stays. It may answer a client whose packets netfilter has redirected to a server here,
 * and restores the addresses after lo.
 */
static __always_inline int has_own_address(const struct packet *p)
{
	return !p->ipv6 && !(is_loopback4(p->saddr) && is_loopback4(p->daddr));
}

/* is_alias: the packet is for another fraction's address. */
static __always_inline int is_alias(const struct packet *p)
{
	return is_loopback4(p->daddr) && p->daddr & bpf_htonl(ALIAS);
}

/* set_address replaces an address of the packet, and in the packet that it quotes. */
static __always_inline int set_address(struct __sk_buff *skb, struct packet *p, int end, __be32 address)
{
	__be32 *field = end == SOURCE ? &p->saddr : &p->daddr, old = *field;
	__u32 source = offsetof(struct iphdr, saddr), destination = offsetof(struct iphdr, daddr);
	__u64 flags = sizeof(address);

	if (address == old)
		return 1;
	if (!p->icmp)
		flags |= BPF_F_PSEUDO_HDR | (p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	if (bpf_l4_csum_replace(skb, p->check, old, address, flags) < 0 ||
	    bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, address, sizeof(address)) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + (end == SOURCE ? source : destination), &address, sizeof(address), 0) < 0)
		return 0;
	if (p->icmp && bpf_skb_store_bytes(skb, p->quoted + (end == SOURCE ? destination : source), &address,
					   sizeof(address), 0) < 0)
		return 0;
	*field = address;
	return 1;
}

/* hide_addresses is for a packet that leaves. */
__noinline int hide_addresses(struct __sk_buff *skb, struct packet *p)
{
	__be32 saddr, daddr;

	if (!p)
		return 0;
	if (p->ipv6)
		return 1;
	saddr = alias_of(p->saddr);
	daddr = alias_of(p->daddr);
	return saddr && daddr && set_address(skb, p, SOURCE, saddr) && set_address(skb, p, DESTINATION, daddr);
}

/* restore_addresses is for a packet that has come. */
__noinline int restore_addresses(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return 0;
	if (p->ipv6)
		return 1;
	return set_address(skb, p, SOURCE, address_of(p->saddr)) && set_address(skb, p, DESTINATION, address_of(p->daddr));
}
