/*
 * The reflector of a Hostlo segment. plain or unicast runs at the ingress of the
 * segment's TAP for every frame that a fraction sends, and sends it by the same TAP
 * to the queues of other fractions. steer tells the kernel the queue. No frame of a
 * segment passes the programs into the host.
 */

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FRACTIONS 16

/*
 * The longest frame has an IPv6 packet with the largest payload. It may exceed the
 * MTU of the TAP, if the kernel has not segmented it yet, or if it comes from a
 * loopback, whose MTU is larger.
 */
#define IPV6_HEADER 40
#define LONGEST (ETH_HLEN + IPV6_HEADER + 65535)

/* The limit of broadcasts, in ns; set when the programs are loaded. */
volatile const __u64 broadcast_gap;   /* between two broadcasts */
volatile const __u64 broadcast_burst; /* how early a broadcast may be */

/* marks maps a fraction to the mark of frames for it; 0: not in the segment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS + 1);
	__type(key, __u32);
	__type(value, __u32);
} marks SEC(".maps");

/* owners maps a queue to its fraction; 0: none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS);
	__type(key, __u32);
	__type(value, __u32);
} owners SEC(".maps");

/* counts counts each fraction's frames; 0 stands for queues without an owner. */
struct counters {
	__u64 frames;
	__u64 bytes;
	__u64 broadcast;
	__u64 spoofed;
	__u64 limited;
	__u64 oversize;
	__u64 unknown;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FRACTIONS + 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

/* buckets holds the time of each fraction's next broadcast. */
struct bucket {
	struct bpf_spin_lock lock;
	__u64 due; /* ns of the monotonic clock */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS + 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

/* heard has when each fraction has last answered a membership frame, in ns of the monotonic clock; 0: never. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS + 1);
	__type(key, __u32);
	__type(value, __u64);
} heard SEC(".maps");

#define MEMBERSHIP_PROTOCOL 0x88b5

/*
 * fraction_of returns the fraction with an address, or 0. Fraction f has the address
 * 02:68:35:00:00:f.
 */
static __always_inline __u32 fraction_of(const __u8 *mac)
{
	if (mac[0] != 0x02 || mac[1] != 0x68 || mac[2] != 0x35 || mac[3] || mac[4] ||
	    mac[5] > FRACTIONS)
		return 0;
	return mac[5];
}

static __always_inline bool is_broadcast(const __u8 *mac)
{
	return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

/*
 * within_limit takes a token for each frame of a broadcast from the sender's bucket, or
 * returns false. The kernel divides what has a gso_size into frames. A bucket is the time
 * at which it is full again (the virtual scheduling algorithm of ITU-T I.371, annex A).
 */
static __always_inline bool within_limit(const struct __sk_buff *skb, __u32 sender)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &sender);
	__u64 now = bpf_ktime_get_ns(), frames = skb->gso_size ? 1 + skb->len / skb->gso_size : 1;
	bool within;

	if (!bucket)
		return false;

	bpf_spin_lock(&bucket->lock);
	if (bucket->due < now)
		bucket->due = now;
	within = bucket->due - now <= broadcast_burst;
	if (within)
		bucket->due += frames * broadcast_gap;
	bpf_spin_unlock(&bucket->lock);
	return within;
}

static __always_inline bool is_ip(const struct __sk_buff *skb, const struct ethhdr *eth)
{
	return !skb->vlan_present &&
	       (eth->h_proto == bpf_htons(ETH_P_IP) || eth->h_proto == bpf_htons(ETH_P_IPV6));
}

/*
 * identify returns the sender of a frame: the owner of the queue, if the frame has its
 * source address. Otherwise it counts the frame and returns 0.
 */
static __always_inline __u32 identify(struct __sk_buff *skb, struct ethhdr *eth)
{
	__u32 queue = skb->queue_mapping - 1; /* the driver counts from 1 */
	__u32 *owner = bpf_map_lookup_elem(&owners, &queue);
	__u32 fraction = owner ? *owner : 0;
	struct counters *count = bpf_map_lookup_elem(&counts, &fraction);

	if (!count)
		return 0;
	if (!fraction || bpf_skb_load_bytes(skb, 0, eth, sizeof(*eth))) {
		count->unknown++;
		return 0;
	}
	if (fraction_of(eth->h_source) != fraction) {
		count->spoofed++;
		return 0;
	}
	return fraction;
}

/*
 * admit returns whether to reflect a frame: it is IP, not too long, and within the
 * limit of its sender. Otherwise admit counts the frame.
 */
static __always_inline bool admit(struct __sk_buff *skb, const struct ethhdr *eth,
				  __u32 sender, struct counters *count)
{
	if (skb->len > LONGEST) {
		count->oversize++;
		return false;
	}
	if (!is_ip(skb, eth)) {
		count->unknown++;
		return false;
	}
	if (!is_broadcast(eth->h_dest))
		return true;
	if (!within_limit(skb, sender)) {
		count->limited++;
		return false;
	}
	count->broadcast++;
	return true;
}

/* hear returns whether a frame answers a membership frame, and then keeps when. */
static __always_inline bool hear(const struct ethhdr *eth, __u32 sender)
{
	const __u8 *mac = eth->h_dest;
	__u64 now;

	if (eth->h_proto != bpf_htons(MEMBERSHIP_PROTOCOL) || mac[0] != 0x02 || mac[1] != 0x68 || mac[2] != 0x35 ||
	    mac[3] || mac[4] || mac[5])
		return false;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&heard, &sender, &now, BPF_ANY);
	return true;
}

static __always_inline void count_reflected(const struct __sk_buff *skb, struct counters *count)
{
	count->frames++;
	count->bytes += skb->len;
}

/* send_to_all sends a copy to every fraction but one; 0: to every fraction. */
static __always_inline void send_to_all(struct __sk_buff *skb, __u32 but)
{
#pragma unroll /* the key is in memory, where the verifier cannot bound it */
	for (__u32 fraction = 1; fraction <= FRACTIONS; fraction++) {
		__u32 key = fraction;
		__u32 *mark = bpf_map_lookup_elem(&marks, &key);

		if (fraction == but || !mark || !*mark)
			continue;
		skb->mark = *mark;
		bpf_clone_redirect(skb, skb->ifindex, 0);
	}
}

/*
 * plain is the loopback of Bacou et al., section 4.2: it sends every frame to every
 * queue, including the sender's.
 */
SEC("tc")
int plain(struct __sk_buff *skb)
{
	struct ethhdr eth;
	__u32 sender = identify(skb, &eth);
	struct counters *count = bpf_map_lookup_elem(&counts, &sender);

	if (!sender || !count || hear(&eth, sender) || !admit(skb, &eth, sender, count))
		return TC_ACT_SHOT;
	count_reflected(skb, count);
	send_to_all(skb, 0);
	return TC_ACT_SHOT;
}

/* unicast sends a frame to the fraction with its address, a broadcast to all others. */
SEC("tc")
int unicast(struct __sk_buff *skb)
{
	struct ethhdr eth;
	__u32 sender = identify(skb, &eth);
	struct counters *count = bpf_map_lookup_elem(&counts, &sender);
	__u32 to, *mark;

	if (!sender || !count || hear(&eth, sender) || !admit(skb, &eth, sender, count))
		return TC_ACT_SHOT;
	if (is_broadcast(eth.h_dest)) {
		count_reflected(skb, count);
		send_to_all(skb, sender);
		return TC_ACT_SHOT;
	}
	to = fraction_of(eth.h_dest);
	mark = bpf_map_lookup_elem(&marks, &to); /* 0 for fraction 0 */
	if (!mark || !*mark || to == sender) {
		count->unknown++;
		return TC_ACT_SHOT;
	}
	count_reflected(skb, count);
	skb->mark = *mark;
	return bpf_redirect(skb->ifindex, 0);
}

/* steer returns the queue of a frame: its mark is the queue's number plus 1. */
SEC("socket")
int steer(struct __sk_buff *skb)
{
	return skb->mark ? skb->mark - 1 : 0;
}

/* From Linux 5.8 on, no helper called here requires the GPL. */
char __license[] SEC("license") = "Apache-2.0";
