// Package thread runs functions that change their thread, such as its namespaces.
package thread

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread that ends with f and is never the first one of the process. Goroutines
// that f starts run on other threads. A panic of f becomes one of the caller, with its stack.
func Do(f func() error) (err error) {
	var bug any
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil { // it is the caller's to contain
				bug = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread does not end, and its namespaces are those of the process for others.
			defer runtime.UnlockOSThread()
			err = Do(f) // on another thread, as this one waits
			return
		}
		err = f()
	}()
	<-ended
	if bug != nil {
		panic(bug)
	}
	return err
}
