package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/status"
)

// detachTime bounds a detachment for the operator. It leaves room for all tries of an unplug.
const detachTime = 50 * time.Second

// errNoGuest is wrapped when the daemon knows no such guest.
var errNoGuest = errors.New("no such guest")

// serveDetach takes a NIC from its pod because the operator says so: nobody else would give it back.
func (d *daemon) serveDetach(w http.ResponseWriter, r *http.Request) {
	var a status.Detachment
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&a); err != nil {
		http.Error(w, "read request: "+err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), detachTime)
	defer cancel()
	err := d.detach(ctx, a)
	d.logs.Of(a.Guest).Info("detach for the operator", "guest", a.Guest, "container", a.Container, "interface", a.Interface, "endpoint", a.Endpoint, "error", err)
	switch {
	case errors.Is(err, errNoGuest):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (d *daemon) detach(ctx context.Context, a status.Detachment) error {
	g := d.known(a.Guest)
	if g == nil {
		return fmt.Errorf("%w: %.60q", errNoGuest, a.Guest)
	}
	key := attachment.Key{Owner: a.Container, Name: a.Interface}
	if a.Endpoint {
		key.Kind = attachment.Endpoint
	}
	return g.Take(ctx, key)
}
