package trace

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"unnest/internal/plan/cluster"
)

// day is a day in nanoseconds, the unit of times in the Azure trace.
const day = 24 * 3600 * 1e9

// readAzure reads the Azure Trace for Packing 2020, an SQLite database with the tables vm and
// vmType (AzureTracesForPacking2020.md in github.com/Azure/AzurePublicDataset). The tenant is
// the user, a VM is a pod of one container. The trace gives the request of a VM type as a
// fraction of each machine that can host it. readAzure takes the smallest CPU fraction, which
// is that of the largest machine, and multiplies it by Options.Largest.
func readAzure(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return gather(paths, o, rep, func(path string, g *grouping) error {
		prefix := "" // identifiers are unique within one file only
		if g.files > 1 {
			prefix = filepath.Base(path) + "/"
		}
		return readAzureFile(ctx, path, prefix, g, o, rep)
	})
}

func readAzureFile(ctx context.Context, path, prefix string, g *grouping, o *Options, rep *Report) error {
	if err := isSQLite(path); err != nil {
		return err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	location := url.URL{Scheme: "file", Path: absolute, RawQuery: "mode=ro&immutable=1"}
	db, err := sql.Open("sqlite", location.String())
	if err != nil {
		return err
	}
	defer db.Close()
	types, err := azureTypes(ctx, db, o)
	if err != nil {
		return azureError(ctx, err)
	}
	return azureError(ctx, azureVMs(ctx, db, &azureTable{path, prefix, types, g, o, rep}))
}

// isSQLite returns an error for a file without the header of SQLite.
func isSQLite(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fatal{err}
	}
	defer file.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(file, head)
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return errors.New("is compressed: gunzip it first")
	case bytes.HasPrefix(head, []byte("PK")):
		return errors.New("is a zip archive: unzip it first")
	case string(head) != "SQLite format 3\x00":
		return errors.New("not an SQLite database: name the packing_trace file of the Azure trace")
	}
	return nil
}

func azureError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case strings.Contains(err.Error(), "no such"):
		return fmt.Errorf("%w: want the tables vm and vmType of the Azure packing trace", err)
	case strings.Contains(err.Error(), "malformed"), strings.Contains(err.Error(), "disk I/O"):
		return fmt.Errorf("%w: the database is damaged or incomplete; fetch it again", err)
	}
	return err
}

func azureTypes(ctx context.Context, db *sql.DB, o *Options) (map[string]request, error) {
	rows, err := db.QueryContext(ctx, `SELECT vmTypeId, core, memory FROM vmType ORDER BY vmTypeId, CAST(core AS REAL), CAST(memory AS REAL)`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := map[string]request{}
	for rows.Next() {
		var id string
		var core, memory sql.NullFloat64
		if err := rows.Scan(&id, &core, &memory); err != nil {
			return nil, err
		}
		if _, known := types[id]; known {
			continue
		}
		c, err := floatAmount("core", core.Float64, o.Largest.CPU)
		if err != nil {
			return nil, err
		}
		m, err := floatAmount("memory", memory.Float64, o.Largest.Memory)
		if err != nil {
			return nil, err
		}
		types[id] = o.request(c, m)
	}
	return types, rows.Err()
}

type azureTable struct {
	path, prefix string
	types        map[string]request
	g            *grouping
	o            *Options
	rep          *Report
}

func azureVMs(ctx context.Context, db *sql.DB, t *azureTable) error {
	rows, err := db.QueryContext(ctx, `SELECT vmId, tenantId, vmTypeId, starttime, endtime FROM vm ORDER BY rowid`)
	if err != nil {
		return err
	}
	defer rows.Close()
	tenants := names{}
	for line := 1; rows.Next(); line++ {
		var id, tenant, kind sql.RawBytes
		var start, end sql.NullFloat64
		if err := rows.Scan(&id, &tenant, &kind, &start, &end); err != nil {
			if err := t.rep.broken(Broken{t.path, "row", line, err}, t.o); err != nil {
				return err
			}
			continue
		}
		if err := t.vm(line, string(id), tenants.of(tenant), string(kind), start, end); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *azureTable) vm(line int, id, tenant, kind string, start, end sql.NullFloat64) error {
	q, known := t.types[kind]
	if !known {
		return t.rep.broken(Broken{t.path, "row", line, fmt.Errorf("vmTypeId %q is not in the table vmType", clip([]byte(kind)))}, t.o)
	}
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	for _, at := range []sql.NullFloat64{start, end} {
		if at.Valid {
			t.o.saw(int64(at.Float64*day), 1)
		}
	}
	if start.Valid {
		from = int64(start.Float64 * day)
	}
	if end.Valid {
		to = int64(end.Float64 * day)
	}
	switch {
	case tenant == "":
		q.why = NoOwner
	case !t.o.Period.all() && !t.o.Period.span(1).overlaps(from, to):
		q.why = Outside
	}
	if !t.rep.add(q) {
		return nil
	}
	return t.g.add(t.prefix+tenant, id, id, q.Resources)
}
