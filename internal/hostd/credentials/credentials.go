// Package credentials issues the credentials of guests and of policy clients, and says
// whether one is accepted: enrolment, offers through the VMM, renewal, revocation, and
// warnings before a certificate expires. The rules of a guest's set of certificates are in
// package certificates; connections do not belong here.
package credentials

import (
	"log/slog"
	"time"

	"unnest.io/unnest/internal/hostd/guestlog"
)

// Store issues and checks the credentials of a daemon's guests. They are in its
// state directory.
type Store struct {
	stateDir string
	log      *slog.Logger
	logs     *guestlog.Logs
	address  func() string
	expiries *expiries
}

// New returns the credentials in a state directory. Guests reach the daemon at
// the address that address returns; "" before there is one.
func New(stateDir string, log *slog.Logger, logs *guestlog.Logs, address func() string) *Store {
	return &Store{stateDir: stateDir, log: log, logs: logs, address: address, expiries: &expiries{seen: map[string]time.Time{}, warned: map[string]time.Time{}}}
}
