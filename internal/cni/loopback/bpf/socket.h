/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h - finds the socket of this fraction that accepts a packet. */
#pragma once

#define NO_SOCKET 0		/* in addition to BPF_TCP_ESTABLISHED and the other states */

/* fill_tuple returns the length of the part that it fills. */
static __always_inline __u32 fill_tuple(struct bpf_sock_tuple *t, const struct packet *p, __be16 sport)
{
	__builtin_memset(t, 0, sizeof(*t));
	if (p->ipv6) {
		t->ipv6.saddr[3] = t->ipv6.daddr[3] = bpf_htonl(1);
		t->ipv6.sport = sport;
		t->ipv6.dport = p->dport;
		return sizeof(t->ipv6);
	}
	t->ipv4.saddr = p->saddr;
	t->ipv4.daddr = p->daddr;
	t->ipv4.sport = sport;
	t->ipv4.dport = p->dport;
	return sizeof(t->ipv4);
}

static __always_inline int has_udp_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple t;
	__u32 size = fill_tuple(&t, p, p->sport);
	struct bpf_sock *sk = bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);

	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

static __always_inline int tcp_state_from(struct __sk_buff *skb, const struct packet *p, __be16 sport)
{
	struct bpf_sock_tuple t;
	__u32 size = fill_tuple(&t, p, sport);
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	int state;

	if (!sk)
		return NO_SOCKET;
	state = sk->state;
	bpf_sk_release(sk);
	return state;
}

/*
 * tcp_state is the state of the connection's socket, or BPF_TCP_LISTEN when there is
 * only a listener.
 */
static __always_inline int tcp_state(struct __sk_buff *skb, const struct packet *p)
{
	return tcp_state_from(skb, p, p->sport);
}

/* has_listener ignores the sockets of connections: no connection has port 0. */
static __always_inline int has_listener(struct __sk_buff *skb, const struct packet *p)
{
	return tcp_state_from(skb, p, 0) == BPF_TCP_LISTEN;
}
