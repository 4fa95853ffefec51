package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// mediaType is that of Docker's plugin protocol.
const mediaType = "application/vnd.docker.plugins.v1.1+json"

// network is NetworkID of most requests, endpoint EndpointID.
type (
	network struct {
		NetworkID string
		Options   map[string]json.RawMessage
		IPv4Data  []struct{ AddressSpace string }
	}
	endpoint struct {
		NetworkID, EndpointID string
		Interface             *iface
		SandboxKey            string
		Options               map[string]json.RawMessage
	}
	iface struct {
		Address     string `json:",omitempty"` // ADDRESS/PREFIX-LENGTH
		AddressIPv6 string `json:",omitempty"`
		MacAddress  string `json:",omitempty"`
	}
	joined struct {
		InterfaceName         *interfaceName `json:",omitempty"`
		Gateway, GatewayIPv6  string         `json:",omitempty"`
		DisableGatewayService bool
	}
	interfaceName struct{ SrcName, DstPrefix string }
	poolRequest   struct {
		Pool, SubPool string
		V6            bool
	}
	poolAnswer struct {
		PoolID, Pool string
		Data         map[string]string
	}
	addressRequest struct {
		PoolID, Address string
		Options         map[string]string
	}
	addressAnswer struct{ Address string }
)

// Docker's labels in options.
const (
	labelInternal = "com.docker.network.internal"
	labelGeneric  = "com.docker.network.generic"
	labelPorts    = "com.docker.network.portmap"
	labelGateway  = "com.docker.network.gateway"
	addressType   = "RequestAddressType"
)

// handler serves the protocol: the calls of libnetwork's remote network driver and of its remote IPAM.
func (d *driver) handler() http.Handler {
	mux := http.NewServeMux()
	on(d, mux, "Plugin.Activate", func(context.Context, struct{}) (any, error) {
		return map[string]any{"Implements": []string{"NetworkDriver", "IpamDriver"}}, nil
	})
	on(d, mux, "NetworkDriver.GetCapabilities", func(context.Context, struct{}) (any, error) {
		return map[string]string{"Scope": "local", "ConnectivityScope": "local"}, nil
	})
	on(d, mux, "NetworkDriver.CreateNetwork", d.createNetwork)
	on(d, mux, "NetworkDriver.DeleteNetwork", d.deleteNetwork)
	on(d, mux, "NetworkDriver.CreateEndpoint", d.createEndpoint)
	on(d, mux, "NetworkDriver.DeleteEndpoint", d.deleteEndpoint)
	on(d, mux, "NetworkDriver.EndpointOperInfo", func(context.Context, endpoint) (any, error) {
		return map[string]any{"Value": map[string]any{}}, nil
	})
	on(d, mux, "NetworkDriver.Join", d.join)
	on(d, mux, "NetworkDriver.Leave", d.leave)
	on(d, mux, "NetworkDriver.ProgramExternalConnectivity", d.publish)
	on(d, mux, "NetworkDriver.RevokeExternalConnectivity", d.unpublish)
	on(d, mux, "NetworkDriver.DiscoverNew", nothing)
	on(d, mux, "NetworkDriver.DiscoverDelete", nothing)
	on(d, mux, "IpamDriver.GetCapabilities", func(context.Context, struct{}) (any, error) {
		return map[string]bool{"RequiresMACAddress": false, "RequiresRequestReplay": false}, nil
	})
	on(d, mux, "IpamDriver.GetDefaultAddressSpaces", func(context.Context, struct{}) (any, error) {
		return map[string]string{"LocalDefaultAddressSpace": addressSpace, "GlobalDefaultAddressSpace": addressSpace}, nil
	})
	on(d, mux, "IpamDriver.RequestPool", d.requestPool)
	on(d, mux, "IpamDriver.ReleasePool", nothing)
	on(d, mux, "IpamDriver.RequestAddress", d.requestAddress)
	on(d, mux, "IpamDriver.ReleaseAddress", d.releaseAddress)
	return mux
}

func nothing(context.Context, struct{}) (any, error) { return nil, nil }

// on serves one call. Docker prints the error of an answer that is not 200.
func on[T any](d *driver, mux *http.ServeMux, call string, serve func(context.Context, T) (any, error)) {
	mux.HandleFunc("POST /"+call, func(w http.ResponseWriter, r *http.Request) {
		var request T
		begin := time.Now()
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&request)
		if _, without := any(request).(struct{}); r.ContentLength == 0 {
			err = nil
			if !without {
				err = errors.New("the call has no arguments: Docker repeats one that the driver had not answered when it ended; try again")
			}
		}
		var answer any
		if err == nil {
			answer, err = serve(r.Context(), request)
		}
		if answer == nil {
			answer = struct{}{}
		}
		level, attrs := slog.LevelDebug, []slog.Attr{slog.Duration("total", time.Since(begin))}
		status := http.StatusOK
		if err != nil {
			text := strings.ReplaceAll(err.Error(), "\n", "; ")
			level, status, answer = slog.LevelError, http.StatusInternalServerError, map[string]string{"Err": text}
			attrs = append(attrs, slog.String("error", text))
		}
		d.log.LogAttrs(r.Context(), level, call, attrs...)
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // an error is Docker's, which has gone
	})
}
