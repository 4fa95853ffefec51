// Command sbom writes what programs consist of, as SPDX 2.3 in JSON: sbom NAME VERSION PROGRAM...
// It reads the build information that Go puts into a program: the toolchain and every module with
// its version and checksum. The time is that of SOURCE_DATE_EPOCH, so that equal programs have equal
// documents.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom NAME VERSION PROGRAM...")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(to io.Writer, name, version string, programs []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w; set it to the time of the revision, in seconds", err)
	}
	d := document{modules: map[string]bool{}}
	whole := d.add("Release", name, version)
	whole.PackageLicenseDeclared = "Apache-2.0"
	d.relate("DOCUMENT", "DESCRIBES", whole)
	sum := sha256.New()
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum.Write(content)
		d.addProgram(whole, filepath.Base(path), version, content, info)
	}
	sbom := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name + "-" + version,
		DocumentNamespace: "https://spdx.org/spdxdocs/" + name + "-" + version + "-" + hex.EncodeToString(sum.Sum(nil)),
		CreationInfo: &spdx.CreationInfo{
			Created: time.Unix(epoch, 0).UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "unnest-sbom"}},
		},
		Packages: d.packages, Relationships: d.relationships,
	}
	if err := spdxlib.ValidateDocument(sbom); err != nil {
		return err
	}
	return json.Write(sbom, to, json.Indent("  "))
}

type document struct {
	packages      []*spdx.Package
	relationships []*spdx.Relationship
	modules       map[string]bool // by the identifiers of their packages
}

// addProgram adds a program, a part of whole, with its modules.
func (d *document) addProgram(whole *spdx.Package, name, version string, content []byte, info *debug.BuildInfo) {
	p := d.add("Program", name, version)
	sum := sha256.Sum256(content)
	p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}}
	d.relate(whole.PackageSPDXIdentifier, "CONTAINS", p)
	modules := map[string]debug.Module{"stdlib": {Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		modules[m.Path] = *cmp.Or(m.Replace, m)
	}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		id := identifier("Module", m.Path, m.Version)
		if !d.modules[string(id)] {
			d.modules[string(id)] = true
			q := d.add("Module", m.Path, m.Version)
			q.PackageExternalReferences = []*spdx.PackageExternalReference{{
				Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + m.Path + "@" + m.Version,
			}}
			if m.Sum != "" {
				q.PackageComment = "go.sum: " + m.Sum
			}
		}
		d.relationships = append(d.relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), RefB: common.MakeDocElementID("", string(id)), Relationship: "DEPENDS_ON",
		})
	}
}

// add adds a package, which is a Release, Program or Module.
func (d *document) add(kind, name, version string) *spdx.Package {
	p := &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: identifier(kind, name, version), PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
	}
	d.packages = append(d.packages, p)
	return p
}

// relate says that from is in a relationship with p.
func (d *document) relate(from common.ElementID, kind string, p *spdx.Package) {
	d.relationships = append(d.relationships, &spdx.Relationship{
		RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), Relationship: kind,
	})
}

// identifier is the SPDX identifier of a package: letters, digits, dots and hyphens.
func identifier(kind, name, version string) common.ElementID {
	return common.ElementID(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, kind+"-"+name+"-"+version))
}
