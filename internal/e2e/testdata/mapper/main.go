// Command mapper maps a file, as processes with shared memory do. It writes or reads text at an
// offset, or increments a number there a number of times. Before the increments it adds 1 to the
// third number and waits until the second number is not 0.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: mapper FILE write OFFSET TEXT | read OFFSET BYTES | add OFFSET TIMES")
	}
	memory, err := mapFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	offset, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	number, _ := strconv.Atoi(os.Args[4])
	switch os.Args[2] {
	case "write":
		copy(memory[offset:], os.Args[4])
	case "read":
		fmt.Printf("%s\n", bytes.TrimRight(memory[offset:offset+number], "\x00"))
	case "add":
		n := (*[3]uint64)(unsafe.Pointer(&memory[offset]))
		atomic.AddUint64(&n[2], 1)
		for atomic.LoadUint64(&n[1]) == 0 {
			runtime.Gosched()
		}
		for range number {
			atomic.AddUint64(&n[0], 1)
		}
		fmt.Println(atomic.LoadUint64(&n[0]))
	default:
		log.Fatalf("unknown command: %s", os.Args[2])
	}
}

func mapFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}
