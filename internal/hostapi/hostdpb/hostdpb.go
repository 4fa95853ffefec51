// Package hostdpb is the wire form of the host daemon's service, generated from
// hostd.proto. Nothing written by hand belongs here.
package hostdpb

//go:generate sh generate.sh
