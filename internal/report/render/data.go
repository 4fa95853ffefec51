package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"unnest.io/unnest/internal/report/document"
)

// ErrNoData is returned by JSON and CSV for a document without them.
var ErrNoData = errors.New("the document has no data: print it as text, Markdown or HTML")

// JSON prints the data of a document, with their version before the other keys.
func JSON(w io.Writer, doc document.Document) error {
	if doc.Data == nil {
		return fmt.Errorf("print JSON: %w", ErrNoData)
	}
	data, err := versioned(doc.SchemaVersion, doc.Data)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(data)
}

// versioned puts the version before the other keys of data, which must be an object.
func versioned(version int, data any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b.Bytes(), []byte("{"))
	if !ok {
		return nil, fmt.Errorf("encode %T: is not an object", data)
	}
	return fmt.Appendf(nil, `{"schema_version":%d,%s`, version, rest), nil
}

// CSV prints the records of a document.
func CSV(w io.Writer, doc document.Document) error {
	if doc.Records == nil {
		return fmt.Errorf("print CSV: %w", ErrNoData)
	}
	return csv.NewWriter(w).WriteAll(doc.Records)
}
