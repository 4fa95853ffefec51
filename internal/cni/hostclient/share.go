package hostclient

import (
	"context"

	"unnest/internal/hostapi/hostdpb"
)

// AttachVolume asks for a volume of a pod.
func (c Client) AttachVolume(ctx context.Context, r *hostdpb.AttachVolumeRequest) (*hostdpb.Volume, error) {
	answer, err := do(ctx, c, attachTime, r, c.client.AttachVolume)
	return answer.GetVolume(), err
}

// DetachVolume gives a volume back; there may be none.
func (c Client) DetachVolume(ctx context.Context, pod, name string) error {
	_, err := do(ctx, c, detachTime, &hostdpb.DetachVolumeRequest{Pod: pod, Name: name}, c.client.DetachVolume)
	return err
}

// AttachSharedMemory asks for memory that a pod shares.
func (c Client) AttachSharedMemory(ctx context.Context, r *hostdpb.AttachSharedMemoryRequest) (*hostdpb.SharedMemory, error) {
	answer, err := do(ctx, c, attachTime, r, c.client.AttachSharedMemory)
	return answer.GetMemory(), err
}

// DetachSharedMemory gives memory back; there may be none.
func (c Client) DetachSharedMemory(ctx context.Context, pod, name string) error {
	_, err := do(ctx, c, detachTime, &hostdpb.DetachSharedMemoryRequest{Pod: pod, Name: name}, c.client.DetachSharedMemory)
	return err
}
