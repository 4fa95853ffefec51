package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"unnest.io/unnest/internal/plan/cluster"
)

// grouping gathers containers into pods and pods into users, in the order of the rows.
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

func (g *grouping) user(name string) *owner {
	u := g.users[name]
	if u == nil {
		u = &owner{cluster.User{Name: name}, map[string]int{}}
		g.users[name] = u
	}
	return u
}

// pod returns the pod of a user by its name. The pointer is valid until the next call.
func (u *owner) pod(name string) *cluster.Pod {
	at, known := u.pods[name]
	if !known {
		at = len(u.Pods)
		u.pods[name] = at
		u.Pods = append(u.Pods, cluster.Pod{Name: name})
	}
	return &u.Pods[at]
}

func (g *grouping) add(user, pod, container string, r cluster.Resources) error {
	if err := g.room(1); err != nil {
		return err
	}
	p := g.user(user).pod(pod)
	p.Containers = append(p.Containers, cluster.Container{Name: container, Request: r})
	return nil
}

// room counts containers, and returns an error when there are more than allowed.
func (g *grouping) room(n int64) error {
	if n > int64(g.most-g.containers) {
		return tooMany(g.most)
	}
	g.containers += int(n)
	return nil
}

func tooMany(most int) error {
	return fatal{fmt.Errorf("more than %d containers: read a shorter period, or allow more containers", most)}
}

// gather reads files one after the other into users.
func gather(paths []string, o *Options, rep *Report, read func(path string, g *grouping) error) ([]cluster.User, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	g := newGrouping(o)
	for _, path := range files {
		if err := read(path, g); err != nil {
			return nil, inFile(path, err)
		}
		rep.Files++
	}
	return g.sorted(), nil
}

func (g *grouping) sorted() []cluster.User {
	users := make([]cluster.User, 0, len(g.users))
	for _, u := range g.users {
		users = append(users, u.User)
	}
	slices.SortFunc(users, func(a, b cluster.User) int { return cmp.Compare(a.Name, b.Name) })
	return users
}

// index returns i in decimal. Low numbers share their memory.
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
