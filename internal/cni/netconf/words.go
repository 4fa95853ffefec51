package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// inWords gives an error of package json the words of the configuration's author: the key, what it
// has, and what is wanted.
func inWords(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err
	}
	key := t.Field
	for head, rest, ok := strings.Cut(key, "."); ok && unicode.IsUpper(rune(head[0])); head, rest, ok = strings.Cut(key, ".") {
		key = rest // after the name of an embedded struct
	}
	if key != "" {
		key += ": "
	}
	got, _, _ := strings.Cut(t.Value, " ") // "number 1.5"
	return fmt.Errorf("%sgot %s, want %s", key, inJSON[got], wanted(t.Type))
}

// inJSON are the values as package json names them.
var inJSON = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "an object"
}
