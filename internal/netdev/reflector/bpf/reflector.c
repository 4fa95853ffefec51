/*
 * The reflector of a Hostlo segment. plain and unicast run at the ingress of the
 * segment's TAP, for every frame that a fraction sends, and send it out by the
 * same TAP, to the queues of other fractions. steer then tells the kernel to which
 * queue. Nothing of a segment gets past the programs into the host.
 */

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FRACTIONS 16

/*
 * The longest frame is that of an IPv6 packet of the largest payload. The kernel
 * may hold it as one although it is more than a TAP's MTU: it is to be segmented,
 * or comes from a loopback, whose MTU is larger.
 */
#define IPV6_HEADER 40
#define LONGEST (ETH_HLEN + IPV6_HEADER + 65535)

/* A share of broadcasts, in ns; set when the programs are loaded. */
volatile const __u64 broadcast_gap;   /* what one costs */
volatile const __u64 broadcast_burst; /* how far ahead of its time one may be */

/* marks tells what leads a frame to a fraction; 0 where there is no such fraction. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS + 1);
	__type(key, __u32);
	__type(value, __u32);
} marks SEC(".maps");

/* owners tells whose a queue is; 0 is nobody. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRACTIONS);
	__type(key, __u32);
	__type(value, __u32);
} owners SEC(".maps");

/* counts has what was done with each fraction's frames; 0 is for nobody's. */
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

/* buckets has for each fraction when its next broadcast is due. */
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

/*
 * fraction_of returns whose address it is, 0 for nobody's. That of fraction f is
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
 * within_share takes one broadcast out of the sender's token bucket, written as
 * the time at which the bucket is full again (the virtual scheduling algorithm of
 * ITU-T I.371, annex A). It returns false when there is none.
 */
static __always_inline bool within_share(__u32 sender)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &sender);
	__u64 now = bpf_ktime_get_ns();
	bool within;

	if (!bucket)
		return false;

	bpf_spin_lock(&bucket->lock);
	if (bucket->due < now)
		bucket->due = now;
	within = bucket->due - now <= broadcast_burst;
	if (within)
		bucket->due += broadcast_gap;
	bpf_spin_unlock(&bucket->lock);
	return within;
}

static __always_inline bool is_ip(const struct __sk_buff *skb, const struct ethhdr *eth)
{
	return !skb->vlan_present &&
	       (eth->h_proto == bpf_htons(ETH_P_IP) || eth->h_proto == bpf_htons(ETH_P_IPV6));
}

/*
 * identify returns the sender of a frame: the fraction whose queue it comes by, if
 * that is its source address. Else the frame is counted, and the answer is 0.
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
 * admit reports whether a frame may be reflected: it is IP, no longer than such a
 * frame can be, and within its sender's share. Else the frame is counted.
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
	if (!within_share(sender)) {
		count->limited++;
		return false;
	}
	count->broadcast++;
	return true;
}

static __always_inline void count_reflected(const struct __sk_buff *skb, struct counters *count)
{
	count->frames++;
	count->bytes += skb->len;
}

/* send_to_all sends a copy to every fraction but one; 0 is none. */
static __always_inline void send_to_all(struct __sk_buff *skb, __u32 but)
{
#pragma unroll /* the key is in memory, where the verifier loses count of it */
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
 * plain is the loopback of Bacou et al., section 4.2: every frame goes to every
 * queue, its sender's too.
 */
SEC("tc")
int plain(struct __sk_buff *skb)
{
	struct ethhdr eth;
	__u32 sender = identify(skb, &eth);
	struct counters *count = bpf_map_lookup_elem(&counts, &sender);

	if (!sender || !count || !admit(skb, &eth, sender, count))
		return TC_ACT_SHOT;
	count_reflected(skb, count);
	send_to_all(skb, 0);
	return TC_ACT_SHOT;
}

/* unicast sends a frame to the fraction whose address it has, or to all others. */
SEC("tc")
int unicast(struct __sk_buff *skb)
{
	struct ethhdr eth;
	__u32 sender = identify(skb, &eth);
	struct counters *count = bpf_map_lookup_elem(&counts, &sender);
	__u32 to, *mark;

	if (!sender || !count || !admit(skb, &eth, sender, count))
		return TC_ACT_SHOT;
	if (is_broadcast(eth.h_dest)) {
		count_reflected(skb, count);
		send_to_all(skb, sender);
		return TC_ACT_SHOT;
	}
	to = fraction_of(eth.h_dest);
	mark = bpf_map_lookup_elem(&marks, &to); /* that of 0 is 0 */
	if (!mark || !*mark || to == sender) {
		count->unknown++;
		return TC_ACT_SHOT;
	}
	count_reflected(skb, count);
	skb->mark = *mark;
	return bpf_redirect(skb->ifindex, 0);
}

/* steer returns the queue by which a frame leaves the TAP: a mark is one more. */
SEC("socket")
int steer(struct __sk_buff *skb)
{
	return skb->mark ? skb->mark - 1 : 0;
}

/* No helper that is called here asks for the GPL, from Linux 5.8 on. */
char __license[] SEC("license") = "Apache-2.0";
