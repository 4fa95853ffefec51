/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h - finds the socket of this fraction that accepts a packet. */
#pragma once

#define NO_SOCKET 0		/* in addition to BPF_TCP_ESTABLISHED and the other states */

/* fill_tuple returns the length of the part that it fills. */
static __always_inline __u32 fill_tuple(struct bpf_sock_tuple *t, const struct packet *p, __be16 sport)
{
	if (p->ipv6) {
		__builtin_memcpy(t->ipv6.saddr, &p->saddr6, sizeof(p->saddr6));
		__builtin_memcpy(t->ipv6.daddr, &p->daddr6, sizeof(p->daddr6));
		t->ipv6.sport = sport;
		t->ipv6.dport = p->dport;
		return sizeof(t->ipv6);
	}
	__builtin_memset(t, 0, sizeof(*t));
	t->ipv4.saddr = p->saddr;
	t->ipv4.daddr = p->daddr;
	t->ipv4.sport = sport;
	t->ipv4.dport = p->dport;
	return sizeof(t->ipv4);
}

/* reversed is a packet that answers p, which has the given source port. */
static __always_inline struct packet reversed(const struct packet *p, __be16 sport)
{
	struct packet answer = {
		.saddr = p->daddr,
		.daddr = p->saddr,
		.sport = p->dport,
		.dport = sport,
		.ipv6 = p->ipv6,
		.saddr6 = p->daddr6,
		.daddr6 = p->saddr6,
	};

	return answer;
}

__noinline int has_udp_socket(struct __sk_buff *skb, const struct packet *p, __u32 sport)
{
	struct bpf_sock_tuple t;
	struct bpf_sock *sk;
	__u32 size;

	if (!p)
		return 0;
	size = fill_tuple(&t, p, sport);
	sk = bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

/* gets_udp_answer: an answer to p, from the given port, is for a socket of this fraction. */
static __always_inline int gets_udp_answer(struct __sk_buff *skb, const struct packet *p, __be16 sport)
{
	struct packet answer = reversed(p, sport);

	return has_udp_socket(skb, &answer, answer.sport);
}

__noinline int tcp_state_from(struct __sk_buff *skb, const struct packet *p, __u32 sport)
{
	struct bpf_sock_tuple t;
	struct bpf_sock *sk;
	__u32 size;
	int state;

	if (!p)
		return NO_SOCKET;
	size = fill_tuple(&t, p, sport);
	sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
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

/* is_connected: the state is that of a connection's socket. */
static __always_inline int is_connected(int state)
{
	return state != NO_SOCKET && state != BPF_TCP_LISTEN;
}

/*
 * sender is the connection's socket that sends the segment, or NULL: the kernel sends
 * some answers, such as resets, without it.
 */
static __always_inline struct bpf_sock *sender(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock *sk = skb->sk;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->src_port != bpf_ntohs(p->sport) || sk->state == BPF_TCP_LISTEN)
		return 0;
	return sk;
}
