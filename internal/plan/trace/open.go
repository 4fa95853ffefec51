package trace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"unnest.io/unnest/internal/plan/use"
)

// archives are formats that open does not unpack, by their first bytes.
var archives = []struct{ magic, name, fix string }{
	{"PK\x03\x04", "a zip archive", "unzip it"},
	{"\x28\xb5\x2f\xfd", "compressed with zstd", "run unzstd on it"},
	{"\xfd7zXZ\x00", "compressed with xz", "run unxz on it"},
	{"BZh", "compressed with bzip2", "run bunzip2 on it"},
	{"SQLite format 3\x00", "an SQLite database", "write a CSV file of it with sqlite3, as docs/plan.md shows,"},
	{"PAR1", "a Parquet file", "write a CSV file of it with DuckDB, as docs/plan.md shows,"},
}

// open opens a file, or standard input, and decompresses gzip, which it tells by the
// content. Reading standard input ends with the context.
func open(ctx context.Context, path string, stdin io.Reader) (io.ReadCloser, error) {
	if path == stdinPath {
		if stdin == nil {
			return nil, fmt.Errorf("%s: not available: name a file", stdinName)
		}
		pr, pw := io.Pipe()
		go func() {
			_, err := io.Copy(pw, stdin)
			pw.CloseWithError(err) //nolint:errcheck // never fails
		}()
		context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) }) //nolint:errcheck // never fails
		r, err := decompress(stdinName, pr)
		return io.NopCloser(r), err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := decompress(path, file)
	if err != nil {
		file.Close() //nolint:errcheck // only read
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r, file}, nil
}

// ReadUse adds what a file says that containers use: see use.Use.Read. "-" is stdin.
func ReadUse(ctx context.Context, format, path string, stdin io.Reader, into *use.Use) error {
	r, err := open(ctx, path, stdin)
	if err != nil {
		return fmt.Errorf("%w: name a file", err)
	}
	defer r.Close() //nolint:errcheck // only read
	if err := into.Read(format, r); err != nil {
		return fmt.Errorf("%s: %w", display(path), err)
	}
	return nil
}

func decompress(path string, r io.Reader) (io.Reader, error) {
	plain := bufio.NewReaderSize(r, 1<<16)
	head, err := plain.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, a := range archives {
		if bytes.HasPrefix(head, []byte(a.magic)) {
			return nil, fmt.Errorf("%s: is %s: %s first", path, a.name, a.fix)
		}
	}
	if !bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return asText(plain), notTar(path, plain)
	}
	unzipped, err := gzip.NewReader(plain)
	if err != nil {
		return nil, readError(path, err)
	}
	content := bufio.NewReaderSize(unzipped, 1<<16)
	return asText(content), notTar(path, content)
}

// asText skips a byte order mark, and decodes UTF-16, which the > of Windows PowerShell
// writes.
func asText(r *bufio.Reader) io.Reader {
	head, _ := r.Peek(2) // a failure comes back from the next read
	if bytes.Equal(head, []byte("\xff\xfe")) || bytes.Equal(head, []byte("\xfe\xff")) {
		return transform.NewReader(r, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder())
	}
	if head, _ = r.Peek(3); bytes.Equal(head, []byte("\xef\xbb\xbf")) {
		_, _ = r.Discard(3) // they are there
	}
	return r
}

// notTar returns an error for a tar archive, which is what Alibaba publishes.
func notTar(path string, r *bufio.Reader) error {
	head, err := r.Peek(262)
	if err != nil && !errors.Is(err, io.EOF) && len(head) == 0 {
		return readError(path, err)
	}
	if len(head) == 262 && string(head[257:]) == "ustar" {
		return fmt.Errorf("%s: is a tar archive: unpack it first", path)
	}
	return nil
}

func readError(path string, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: the compressed data ends early: the file is incomplete; fetch it again", path)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("%s: %w: the file is damaged; fetch it again", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
