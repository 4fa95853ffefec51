// Package schemas has the JSON schemas of what commands print. Tests make them of the types that are
// printed, and hold what is printed against them.
package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// Output is a kind of JSON that commands print.
type Output struct {
	Name    string   // of its file, without .schema.json
	Title   string   // the commands that print it
	Version int      // its schema_version; 0: it has none
	Value   any      // of the type that is printed
	Text    []string // keys whose values are text of a page, which changes at any time
}

// Test makes a schema of o.Value and compares it with the file of o.Name, or writes the file if update is set. Then it
// validates each JSON value in printed. root is the root of the source tree: comments of its fields become
// descriptions.
func (o Output) Test(root string, update bool, printed []byte) error {
	schema, err := o.schema(root)
	if err != nil {
		return fmt.Errorf("schema %s: %w", o.Name, err)
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	file := filepath.Join(root, "docs/schemas", o.Name+".schema.json")
	was, err := os.ReadFile(file)
	switch {
	case err == nil && bytes.Equal(was, text):
	case !update:
		return fmt.Errorf("%s is not that of the types that are printed: run the test with -update, and read the difference", file)
	default:
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	n := 0
	for values := json.NewDecoder(bytes.NewReader(printed)); ; n++ {
		var value any
		if err := values.Decode(&value); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: decode what is printed: %w", o.Name, err)
		}
		if err := resolved.Validate(value); err != nil {
			return fmt.Errorf("%s: what is printed does not follow the schema: %w", o.Name, err)
		}
	}
	if n == 0 {
		return fmt.Errorf("%s: nothing is printed", o.Name)
	}
	return nil
}

func (o Output) schema(root string) (*jsonschema.Schema, error) {
	of := reflect.TypeOf(o.Value)
	schema, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[document.Number](): {Types: []string{"null", "number"}},
		reflect.TypeFor[summary.Dollars](): {Type: "number"},
		// The package takes no numbers as keys of a map.
		reflect.TypeFor[map[segment.Fraction]status.Frames](): {Type: "object"},
		reflect.TypeFor[map[int]float64]():                    {Type: "object"},
	}})
	if err != nil {
		return nil, err
	}
	if err := (source{root, map[string]string{}, map[string]bool{}}).describe(schema, of); err != nil {
		return nil, err
	}
	schema.Schema, schema.Title = "https://json-schema.org/draft/2020-12/schema", o.Title
	for _, key := range o.Text {
		schema.Properties[key] = &jsonschema.Schema{Description: "Text of the page, which changes at any time."}
	}
	if o.Version > 0 {
		var version any = o.Version
		schema.Properties["schema_version"] = &jsonschema.Schema{Const: &version}
		schema.Required = append([]string{"schema_version"}, schema.Required...)
		schema.PropertyOrder = append([]string{"schema_version"}, schema.PropertyOrder...)
	}
	return schema, nil
}

// source has the comments of the fields of types in a source tree.
type source struct {
	root     string
	comments map[string]string // by PACKAGE.TYPE.FIELD
	read     map[string]bool   // by package
}

// describe puts the comments of fields into the schema of a type. Objects may have more keys than it knows: keys
// are added without a new version.
func (s source) describe(schema *jsonschema.Schema, of reflect.Type) error {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of.Kind() == reflect.Slice && schema.Items != nil:
		return s.describe(schema.Items, of.Elem())
	case of.Kind() == reflect.Map && schema.AdditionalProperties != nil:
		return s.describe(schema.AdditionalProperties, of.Elem())
	case of.Kind() != reflect.Struct || schema.Properties == nil:
		return nil
	}
	schema.AdditionalProperties = nil
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := schema.Properties[cmp.Or(name, f.Name)]
		if f.Anonymous || property == nil {
			continue
		}
		if err := s.describe(property, f.Type); err != nil {
			return err
		}
		in := of // the structure that has the field: of, or one that it embeds
		for _, i := range f.Index[:len(f.Index)-1] {
			in = in.Field(i).Type
		}
		if err := s.load(in.PkgPath()); err != nil {
			return err
		}
		property.Description = s.comments[in.PkgPath()+"."+in.Name()+"."+f.Name]
	}
	return nil
}

// load reads the comments of the structures of a package of ours.
func (s source) load(path string) error {
	_, dir, ours := strings.Cut(path, "/internal/")
	if !ours || s.read[path] {
		return nil
	}
	s.read[path] = true
	files, err := filepath.Glob(filepath.Join(s.root, "internal", dir, "*.go"))
	for _, file := range slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") }) {
		var parsed *ast.File
		if parsed, err = parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments); err != nil {
			break
		}
		for node := range ast.Preorder(parsed) {
			named, is := node.(*ast.TypeSpec)
			if !is {
				continue
			}
			if structure, is := named.Type.(*ast.StructType); is {
				s.fields(path+"."+named.Name.Name, structure)
			}
		}
	}
	return err
}

func (s source) fields(of string, structure *ast.StructType) {
	for _, field := range structure.Fields.List {
		text := cmp.Or(field.Doc.Text(), field.Comment.Text())
		for _, name := range field.Names {
			s.comments[of+"."+name.Name] = strings.Join(strings.Fields(text), " ")
		}
	}
}
