package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	clusterBits = 16
	clusterSize = 1 << clusterBits
)

// qcow2Header is version 3 (QEMU, docs/interop/qcow2.txt, "Header").
type qcow2Header struct {
	Magic, Version         uint32
	BackingOffset          uint64
	BackingSize            uint32
	ClusterBits            uint32
	Size                   uint64
	Encryption, L1Entries  uint32
	L1Offset               uint64
	RefcountOffset         uint64
	RefcountClusters       uint32
	Snapshots              uint32
	SnapshotsOffset        uint64
	Incompatible           uint64
	Compatible, Autoclear  uint64
	RefcountOrder, Length  uint32
	FormatType, FormatSize uint32 // header extension: format of the backing file
	Format                 [8]byte
	EndType, EndSize       uint32
}

// overlayDisk returns an empty disk in format qcow2 over the raw disk backing of size
// bytes. QEMU's own tool for it is in another Debian package than QEMU.
func overlayDisk(backing string, size int64) ([]byte, error) {
	const mappedByL1Entry = clusterSize / 8 * clusterSize
	entries := (size + mappedByL1Entry - 1) / mappedByL1Entry
	h := qcow2Header{
		Magic: 0x514649fb, Version: 3, ClusterBits: clusterBits, Size: uint64(size),
		BackingSize: uint32(len(backing)), L1Entries: uint32(entries),
		RefcountOffset: 1 * clusterSize, RefcountClusters: 1, L1Offset: 3 * clusterSize,
		RefcountOrder: 4, Length: 104,
		FormatType: 0xe2792aca, FormatSize: 3, Format: [8]byte{'r', 'a', 'w'},
	}
	h.BackingOffset = uint64(binary.Size(h))
	if int(h.BackingOffset)+len(backing) > clusterSize || entries*8 > clusterSize {
		return nil, fmt.Errorf("make disk over %s: path or disk is too large", backing)
	}
	var first bytes.Buffer
	if err := binary.Write(&first, binary.BigEndian, h); err != nil {
		return nil, err
	}
	disk := make([]byte, 4*clusterSize) // header, refcount table, refcount block, L1 table
	copy(disk, append(first.Bytes(), backing...))
	binary.BigEndian.PutUint64(disk[clusterSize:], 2*clusterSize)
	for cluster := range 4 {
		binary.BigEndian.PutUint16(disk[2*clusterSize+2*cluster:], 1)
	}
	return disk, nil
}

func writeOverlayDisk(path, backing string) error {
	f, err := os.Open(backing)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd) // Stat does not tell the size of a block device
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	disk, err := overlayDisk(backing, size)
	if err != nil {
		return err
	}
	return os.WriteFile(path, disk, 0o600)
}
