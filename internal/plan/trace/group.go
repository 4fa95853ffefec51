package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unnest/internal/plan/cluster"
)

// grouping gathers containers into pods and pods into users, in the order in which
// they come.
type grouping struct {
	most, containers int
	users            map[string]*owner
}

type owner struct {
	cluster.User
	pods map[string]int // index in Pods
}

func newGrouping(o *Options) *grouping {
	return &grouping{most: o.MaxContainers, users: map[string]*owner{}}
}

// user returns the user of a name.
func (g *grouping) user(name string) *owner {
	u := g.users[name]
	if u == nil {
		u = &owner{cluster.User{Name: name}, map[string]int{}}
		g.users[name] = u
	}
	return u
}

// pod returns the pod of a user by its name. The pointer is good until the next call.
func (u *owner) pod(name string) *cluster.Pod {
	at, known := u.pods[name]
	if !known {
		at = len(u.Pods)
		u.pods[name] = at
		u.Pods = append(u.Pods, cluster.Pod{Name: name})
	}
	return &u.Pods[at]
}

// add puts a container into the pod of a user.
func (g *grouping) add(user, pod, container string, r cluster.Resources) error {
	if err := g.room(1); err != nil {
		return err
	}
	p := g.user(user).pod(pod)
	p.Containers = append(p.Containers, cluster.Container{Name: container, Request: r})
	return nil
}

// room counts containers, and returns an error when there are more than may be.
func (g *grouping) room(n int64) error {
	if n > int64(g.most-g.containers) {
		return fatal{fmt.Errorf("more than %d containers: read a shorter period, or allow more containers", g.most)}
	}
	g.containers += int(n)
	return nil
}

// sorted returns the users by name.
func (g *grouping) sorted() []cluster.User {
	users := make([]cluster.User, 0, len(g.users))
	for _, u := range g.users {
		users = append(users, u.User)
	}
	slices.SortFunc(users, func(a, b cluster.User) int { return cmp.Compare(a.Name, b.Name) })
	return users
}

// index returns the name of the i-th. Low ones share their memory.
func index(i int) string {
	if i >= 0 && i < len(indexes) {
		return indexes[i]
	}
	return strconv.Itoa(i)
}

var indexes = func() (names [1 << 14]string) {
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}()
