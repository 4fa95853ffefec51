package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	"unnest.io/unnest/internal/testbed/rootdir"
)

// extract unpacks Debian of a foreign architecture without running scripts of packages,
// so it needs neither user-mode emulation nor binfmt_misc. configure does what the
// scripts of the base and of our packages would do. A package that needs its own script
// does not work.
func (b *Builder) extract(ctx context.Context, r Recipe, target string) error {
	// The variant has no base packages. A guest needs these of the required packages that
	// are not essential.
	if err := b.mmdebstrap(ctx, r, target, "--variant=extract", "--include=?essential", "--include=mount,passwd,mawk",
		"--extract-hook="+recordPackages); err != nil {
		return err
	}
	if err := configure(target); err != nil {
		return fmt.Errorf("configure Debian for %s: %w", r.Arch, err)
	}
	release, err := kernelRelease(target)
	if err != nil {
		return err
	}
	return b.run(ctx, nil, "depmod", "--basedir", target, release)
}

// recordPackages enters the packages into the database of dpkg, so that dpkg-query tells their versions. Unpacking
// them does not do that.
const recordPackages = `for deb in "$1"/var/cache/apt/archives/*.deb; do
	dpkg-deb --field "$deb" || exit 1
	printf 'Status: install ok installed\n\n'
done >"$1/var/lib/dpkg/status"`

// configuration is the version of extract and configure. It is part of the digest.
const configuration = 4

// configure makes the files that the scripts of the packages would make.
func configure(dir string) error {
	root := rootdir.Dir(dir)
	var errs []error
	at := func(name string) string {
		path, err := root.Path(name)
		errs = append(errs, err)
		return path
	}
	for _, d := range []string{"proc", "sys", "dev", "run", "tmp", "root", "etc", "mnt", "var/log", "var/lib", "var/tmp"} {
		errs = append(errs, os.MkdirAll(at(d), 0o755))
	}
	for _, file := range []string{"passwd", "group"} { // base-passwd
		content, err := root.ReadFile("usr/share/base-passwd/" + file + ".master")
		errs = append(errs, err, os.WriteFile(at("etc/"+file), content, 0o644))
	}
	errs = append(errs, os.WriteFile(at("etc/shells"), []byte("/bin/sh\n/bin/bash\n"), 0o644), // debianutils
		os.Chmod(at("tmp"), 0o777|os.ModeSticky), os.Chmod(at("var/tmp"), 0o777|os.ModeSticky))
	for _, l := range []struct{ link, target string }{
		{"usr/bin/awk", "mawk"},                              // mawk
		{"usr/bin/java", "../lib/jvm/default-java/bin/java"}, // openjdk-17-jre-headless, by update-alternatives
		{"usr/sbin/iptables", "xtables-nft-multi"},           // iptables, by update-alternatives
		{"usr/sbin/iptables-save", "xtables-nft-multi"},
		{"usr/sbin/iptables-restore", "xtables-nft-multi"},
		{"usr/sbin/ip6tables", "xtables-nft-multi"},
		{"usr/sbin/ip6tables-save", "xtables-nft-multi"},
		{"usr/sbin/ip6tables-restore", "xtables-nft-multi"},
	} {
		path, err := root.Entry(l.link)
		if err == nil {
			err = os.Symlink(l.target, path)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
