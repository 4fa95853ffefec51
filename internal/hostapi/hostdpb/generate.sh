#!/bin/sh
# Generates the Go code of hostd.proto with the plugins that go.mod pins.
set -eu
exec protoc \
	--plugin="$(go tool -n protoc-gen-go)" --go_out=. --go_opt=paths=source_relative \
	--plugin="$(go tool -n protoc-gen-go-grpc)" --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	hostd.proto
