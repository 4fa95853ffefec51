/* SPDX-License-Identifier: Apache-2.0 */
/* reset.h - resets connects that wait only for fractions that have left. */
#pragma once

struct pseudo4 {
	__be32 saddr, daddr;
	__be16 protocol, length;
	struct tcphdr tcp;
};

struct pseudo6 {
	struct in6_addr saddr, daddr;
	__be32 length, protocol;
	struct tcphdr tcp;
};

/* checksum is the Internet checksum (RFC 1071). The length is a multiple of four. */
static __always_inline __sum16 checksum(void *from, __u32 length)
{
	__u32 sum = bpf_csum_diff(0, 0, from, length, 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * fill_refusal writes the answer of a kernel without a listener to a SYN (RFC 9293,
 * section 3.10.7.1).
 */
static __always_inline void fill_refusal(struct tcphdr *tcp, const struct flow *f, __u32 isn)
{
	tcp->source = f->there_port;
	tcp->dest = f->here_port;
	tcp->ack_seq = bpf_htonl(isn + 1);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->rst = 1;
	tcp->ack = 1;
}

/* pass_into_lo overwrites the frame with the given headers and passes a copy into lo. */
static __always_inline void pass_into_lo(struct __sk_buff *skb, __be16 protocol, void *ip, __u32 ip_length,
					 struct tcphdr *tcp)
{
	struct ethhdr eth = {.h_proto = protocol};

	if (bpf_skb_change_tail(skb, ETH_HLEN + ip_length + sizeof(*tcp), 0) < 0)
		return;
	if (bpf_skb_store_bytes(skb, 0, &eth, ETH_HLEN, 0) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, ip, ip_length, 0) < 0 ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + ip_length, tcp, sizeof(*tcp), 0) < 0)
		return;
	bpf_clone_redirect(skb, LO, BPF_F_INGRESS);
}

static __always_inline void refuse4(struct __sk_buff *skb, const struct flow *f, __u32 isn)
{
	struct pseudo4 t = {
		.saddr = f->there,
		.daddr = f->here,
		.protocol = bpf_htons(IPPROTO_TCP),
		.length = bpf_htons(sizeof(t.tcp)),
	};
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tot_len = bpf_htons(sizeof(ip) + sizeof(t.tcp)),
		.ttl = 64,
		.protocol = IPPROTO_TCP,
		.saddr = f->there,
		.daddr = f->here,
	};

	ip.check = checksum(&ip, sizeof(ip));
	fill_refusal(&t.tcp, f, isn);
	t.tcp.check = checksum(&t, sizeof(t));
	pass_into_lo(skb, bpf_htons(ETH_P_IP), &ip, sizeof(ip), &t.tcp);
}

static __always_inline struct in6_addr address6(__be32 number)
{
	struct in6_addr loopback = {.in6_u.u6_addr32[3] = bpf_htonl(1)}, *known;
	struct alias a = {.alias = number, .ipv6 = 1};

	if (!number)
		return loopback;
	known = bpf_map_lookup_elem(&hostlo_aliases, &a);
	return known ? *known : alias6(number);
}

static __always_inline void refuse6(struct __sk_buff *skb, const struct flow *f, __u32 isn)
{
	struct pseudo6 t = {
		.length = bpf_htonl(sizeof(t.tcp)),
		.protocol = bpf_htonl(IPPROTO_TCP),
	};
	struct ipv6hdr ip = {
		.version = 6,
		.payload_len = bpf_htons(sizeof(t.tcp)),
		.nexthdr = IPPROTO_TCP,
		.hop_limit = 64,
	};

	t.saddr = ip.saddr = address6(f->there);
	t.daddr = ip.daddr = address6(f->here);
	fill_refusal(&t.tcp, f, isn);
	t.tcp.check = checksum(&t, sizeof(t));
	pass_into_lo(skb, bpf_htons(ETH_P_IPV6), &ip, sizeof(ip), &t.tcp);
}

struct refusing {
	struct __sk_buff *skb;
	const struct segment *segment;
};

/*
 * refuse_if_all refuses a connect that all present others have refused. A client outside
 * repeats its SYN.
 */
static long refuse_if_all(void *map, struct flow *f, struct refusal *r, struct refusing *to)
{
	__u32 all = awaited(to->segment), isn = r->isn;
	struct flow flow = *f;

	if (flow.protocol != IPPROTO_TCP || r->outside || (r->by & all) != all)
		return 0;
	bpf_map_delete_elem(map, &flow);
	if (flow.ipv6)
		refuse6(to->skb, &flow, isn);
	else
		refuse4(to->skb, &flow, isn);
	return 0;
}

/*
 * refuse_waiting refuses waiting connects. It overwrites the frame. Datagrams do not
 * wait: the next one is refused.
 */
static __always_inline void refuse_waiting(struct __sk_buff *skb, const struct segment *s)
{
	struct refusing to = {.skb = skb, .segment = s};

	bpf_for_each_map_elem(&hostlo_refusals, refuse_if_all, &to, 0);
}
