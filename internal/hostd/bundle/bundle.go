// Package bundle packs what a guest needs for BrFusion into one archive: its credentials, a
// CNI network configuration, and the plugin.
//
// Issuing credentials belongs to package daemon.
package bundle

import (
	"archive/tar"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
)

// Bundle is the content of an archive. Paths in it are relative to the guest's root.
type Bundle struct {
	Credentials string         // directory with the files of package identity; empty: none
	Server      netip.AddrPort // of the daemon, as the guest sees it
	Plugin      string         // the program unnest-cni; empty: none
	PluginDir   string         // where the guest's container engine looks for plugins
}

// The files in the guest.
const (
	credentialsDir = "etc/unnest/"
	networkFile    = "etc/cni/net.d/10-pods.conflist"
	networkName    = "pods"
)

// network is the configuration of docs/brfusion.md.
//
//go:embed network.conflist
var network string

// Create writes the archive to a file, which must not exist and which only the owner can
// read. A step that fails removes the file.
func (b Bundle) Create(file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write archive %s: %w", file, err), os.Remove(file))
		}
	}()
	w := tar.NewWriter(f)
	return errors.Join(b.write(w), w.Close())
}

func (b Bundle) write(w *tar.Writer) error {
	if err := b.writeCredentials(w); err != nil {
		return err
	}
	text := fmt.Sprintf(network, networkName, b.Server)
	if err := add(w, networkFile, 0o644, int64(len(text)), strings.NewReader(text)); err != nil {
		return err
	}
	if b.Plugin == "" {
		return nil
	}
	return addFile(w, path.Join(strings.TrimPrefix(path.Clean(b.PluginDir), "/"), "brfusion"), 0o755, b.Plugin)
}

func (b Bundle) writeCredentials(w *tar.Writer) error {
	if b.Credentials == "" {
		return nil
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: credentialsDir, Mode: 0o700, ModTime: time.Now()}); err != nil {
		return err
	}
	for _, name := range []string{identity.CAFile, identity.CertificateFile, identity.KeyFile} {
		if err := addFile(w, credentialsDir+name, 0o600, filepath.Join(b.Credentials, name)); err != nil {
			return err
		}
	}
	return nil
}

func addFile(w *tar.Writer, name string, mode int64, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return add(w, name, mode, info.Size(), f)
}

func add(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size, ModTime: time.Now()}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
