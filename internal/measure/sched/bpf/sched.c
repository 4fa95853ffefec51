/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counts what the scheduler gives to each domain: CPU time, executions, waiting time and
 * context switches, and the software interrupts that ran meanwhile. A domain is a control
 * group with all below it, or a process with its threads. Domain 0 is everything else but
 * the idle tasks.
 *
 * Programs that read a task by its type have to be under the GPL, among others.
 */

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define DOMAINS 65 /* with domain 0 */
#define TASKS 65536
#define DEPTH 16 /* of control groups; deeper ones belong to no domain */
#define TASK_DEAD 0x80

/* What is read of the kernel's types. The loader finds the fields in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_group {
	struct cgroup_subsys_state css;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct {
	int pid;
	int tgid;
	int on_cpu;
	int on_rq;
	unsigned int __state;
	struct sched_entity se;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
};

struct bpf_iter__task {
	struct task_struct *task;
};
#pragma clang attribute pop

/* v1: domains are control groups of the hierarchy of version 1 that has controller cpu. */
volatile const bool v1;

/* Events count from started, in ns of the monotonic clock, until stopped. 0: not yet. */
volatile __u64 started;
volatile __u64 stopped;

/* lost counts tasks that did not fit into tasks. */
volatile __u64 lost;

/* groups and processes map the ID of a control group or a process to its domain. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DOMAINS);
	__type(key, __u64);
	__type(value, __u32);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/* tasks holds what each thread does, by its ID. Its memory is allocated ahead, because
 * the scheduler's locks are held where it grows. */
/* Some kernels run no program when certain threads give a processor up: on a VM of a cloud, those
 * of process 1. Then a thread has LEFT, and the next one has entered, without an event: what the
 * kernel says that they have run fills the gap. */
enum state { BLOCKED, WAITING, RUNNING, LEFT };

struct task {
	__u64 since; /* it is in this state */
	__u64 ran;   /* ns in all its life, at its last event */
	__u32 domain;
	__u32 state;
	__u32 cpu; /* where it runs */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS);
	__type(key, __u32);
	__type(value, struct task);
} tasks SEC(".maps");

struct counters {
	__u64 cpu; /* ns, as waiting and softirq */
	__u64 waiting;
	__u64 softirq;
	__u64 executions;
	__u64 voluntary;
	__u64 involuntary;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DOMAINS);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

/* softirq holds when this CPU's present software interrupt began. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} softirq SEC(".maps");

/* last holds the thread that has entered this CPU last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} last SEC(".maps");

static __always_inline bool counting(void) { return started && !stopped; }

static __always_inline struct cgroup *group_of(struct task_struct *p)
{
	return v1 ? p->sched_task_group->css.cgroup : p->cgroups->dfl_cgrp;
}

static __always_inline __u32 domain_of(struct task_struct *p)
{
	__u32 tgid = p->tgid, *domain = bpf_map_lookup_elem(&processes, &tgid);
	struct cgroup *group;

	if (domain)
		return *domain;
	group = group_of(p);
	for (int i = 0; i < DEPTH && group; i++) {
		__u64 id = group->kn->id;

		domain = bpf_map_lookup_elem(&groups, &id);
		if (domain)
			return *domain;
		group = group->self.parent->cgroup; /* reading through NULL gives NULL */
	}
	return 0;
}

static __always_inline void put(struct task_struct *p, __u32 domain, __u32 state, __u64 since, __u64 flags)
{
	struct task t = {.since = since,
			 .ran = p->se.sum_exec_runtime,
			 .domain = domain,
			 .state = state,
			 .cpu = bpf_get_smp_processor_id()};
	__u32 tid = p->pid;
	long err = bpf_map_update_elem(&tasks, &tid, &t, flags);

	if (err && err != -17 /* EEXIST: an event came before the seed */)
		__sync_fetch_and_add(&lost, 1);
}

/* unseen is how long a task has run since its last event. */
static __always_inline __u64 unseen(struct task_struct *p, struct task *t, __u64 now)
{
	__u64 ran = p->se.sum_exec_runtime - t->ran, most = now - t->since;

	return ran < most ? ran : most;
}

/* began returns since when a task runs, and counts its execution if no event has. */
static __always_inline __u64 began(struct task_struct *p, struct task *t, __u64 now, struct counters *c)
{
	__u64 since;

	if (!t)
		return started; /* a task without an event has run since the start */
	if (t->state == RUNNING)
		return t->since;
	since = now - unseen(p, t, now);
	c->executions++;
	if (t->state == WAITING)
		c->waiting += since - t->since;
	return since;
}

/* leave ends an execution of a task, which can go on running if it is runnable. */
static __always_inline void leave(struct task_struct *p, __u64 now, bool runnable, bool dead)
{
	__u32 tid = p->pid, domain;
	struct task *t = bpf_map_lookup_elem(&tasks, &tid);
	struct counters *c;

	if (!tid)
		return;
	domain = t ? t->domain : domain_of(p);
	c = bpf_map_lookup_elem(&counts, &domain);
	if (!c)
		return;
	c->cpu += now - began(p, t, now, c);
	if (runnable)
		c->involuntary++;
	else
		c->voluntary++;
	if (dead) {
		bpf_map_delete_elem(&tasks, &tid);
	} else if (t) {
		t->since = now;
		t->ran = p->se.sum_exec_runtime;
		t->state = runnable ? WAITING : BLOCKED;
	} else {
		put(p, domain, runnable ? WAITING : BLOCKED, now, BPF_ANY);
	}
}

/* enter begins an execution of a task. It may have moved to another domain meanwhile. */
static __always_inline void enter(struct task_struct *p, __u64 now)
{
	__u32 tid = p->pid, domain;
	struct counters *c;
	struct task *t;

	if (!tid)
		return;
	domain = domain_of(p);
	c = bpf_map_lookup_elem(&counts, &domain);
	if (!c)
		return;
	c->executions++;
	t = bpf_map_lookup_elem(&tasks, &tid);
	if (!t) { /* no event has made it runnable: it has waited since the start */
		c->waiting += now - started;
		put(p, domain, RUNNING, now, BPF_ANY);
		return;
	}
	if (t->state == WAITING)
		c->waiting += now - t->since;
	else if (t->state != BLOCKED) /* it has left without an event */
		c->cpu += unseen(p, t, now);
	t->since = now;
	t->ran = p->se.sum_exec_runtime;
	t->state = RUNNING;
	t->domain = domain;
	t->cpu = bpf_get_smp_processor_id();
}

/* pass notes that a CPU goes from one task to another. The one that the CPU went to before has
 * left without an event, if it is not the one that leaves now. */
static __always_inline void pass(struct task_struct *prev, struct task_struct *next)
{
	__u32 zero = 0, *tid = bpf_map_lookup_elem(&last, &zero);
	struct task *t;

	if (!tid)
		return;
	if (*tid && *tid != (__u32)prev->pid) {
		t = bpf_map_lookup_elem(&tasks, tid);
		if (t && t->state == RUNNING && t->cpu == bpf_get_smp_processor_id())
			t->state = LEFT;
	}
	*tid = next->pid;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	__u64 now;

	if (!counting())
		return 0;
	now = bpf_ktime_get_ns();
	pass(prev, next);
	leave(prev, now, preempt || !prev_state, prev_state & TASK_DEAD);
	enter(next, now);
	return 0;
}

/* awake begins the waiting of a task, unless its wake-up came before it had slept. */
static __always_inline int awake(struct task_struct *p)
{
	__u32 tid = p->pid;
	struct counters *c;
	struct task *t;
	__u64 now;

	if (!counting())
		return 0;
	t = bpf_map_lookup_elem(&tasks, &tid);
	now = bpf_ktime_get_ns();
	if (t && (t->state == BLOCKED || t->state == LEFT)) {
		c = bpf_map_lookup_elem(&counts, &t->domain);
		if (c && t->state == LEFT)
			c->cpu += unseen(p, t, now);
		t->since = now;
		t->ran = p->se.sum_exec_runtime;
		t->state = WAITING;
	} else if (!t && !p->on_cpu) {
		put(p, domain_of(p), WAITING, now, BPF_ANY);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p) { return awake(p); }

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p) { return awake(p); }

/* on_exec follows a thread that takes the ID of its process. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int old)
{
	__u32 tid = old;
	struct task *t = bpf_map_lookup_elem(&tasks, &tid);

	if (!t || p->pid == old)
		return 0;
	put(p, t->domain, t->state, t->since, BPF_ANY);
	bpf_map_delete_elem(&tasks, &tid);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	__u32 zero = 0;
	__u64 *since = bpf_map_lookup_elem(&softirq, &zero);

	if (since)
		*since = counting() ? bpf_ktime_get_ns() : 0;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	__u32 zero = 0, tid = bpf_get_current_pid_tgid(), domain = 0;
	__u64 *since = bpf_map_lookup_elem(&softirq, &zero);
	struct counters *c;
	struct task *t;

	if (!since || !*since || !counting())
		return 0;
	t = bpf_map_lookup_elem(&tasks, &tid);
	if (t && t->state == RUNNING)
		domain = t->domain;
	c = bpf_map_lookup_elem(&counts, &domain);
	if (c)
		c->softirq += bpf_ktime_get_ns() - *since;
	*since = 0;
	return 0;
}

/* seed adds the tasks that were running or waiting at the start and had no event since. */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p || !p->pid)
		return 0;
	if (p->on_cpu)
		put(p, domain_of(p), RUNNING, started, BPF_NOEXIST);
	else if (!p->__state && p->on_rq)
		put(p, domain_of(p), WAITING, started, BPF_NOEXIST);
	return 0;
}

char __license[] SEC("license") = "Dual BSD/GPL";
