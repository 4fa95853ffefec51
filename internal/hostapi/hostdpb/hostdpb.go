// Package hostdpb is the gRPC protocol between guests and the host daemon, generated from
// hostd.proto. No handwritten code belongs here.
package hostdpb

//go:generate sh generate.sh
