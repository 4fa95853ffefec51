package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
)

var errBzImage = errors.New("not an x86 bzImage with an xz payload")

// uncompressKernel returns the ELF kernel in a bzImage (Linux/x86 boot protocol,
// Documentation/arch/x86/boot.rst, payload_offset and payload_length). QEMU enters it
// through its PVH note, which saves the guest the decompression: seconds under TCG.
func uncompressKernel(ctx context.Context, bzImage []byte) ([]byte, error) {
	payload, err := kernelPayload(bzImage)
	if err != nil {
		return nil, err
	}
	xz := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--single-stream")
	xz.Stdin = bytes.NewReader(payload)
	var out, problem bytes.Buffer
	xz.Stdout, xz.Stderr = &out, &problem
	if err := xz.Run(); err != nil {
		return nil, fmt.Errorf("uncompress kernel: %w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	return out.Bytes(), nil
}

// kernelPayload returns the xz stream in a bzImage, without the four bytes of
// uncompressed length that the kernel's build appends.
func kernelPayload(image []byte) ([]byte, error) {
	const headerEnd = 0x250
	if len(image) < headerEnd || string(image[0x202:0x206]) != "HdrS" {
		return nil, errBzImage
	}
	sectors := int(image[0x1f1])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + int(binary.LittleEndian.Uint32(image[0x248:]))
	length := int(binary.LittleEndian.Uint32(image[0x24c:]))
	if length < 10 || start < 0 || start+length > len(image) {
		return nil, errBzImage
	}
	payload := image[start : start+length-4]
	if !bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")) {
		return nil, errBzImage
	}
	return payload, nil
}
