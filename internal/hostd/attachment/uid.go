package attachment

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// uuidBytes is the size of a UUID, the usual UID of a pod.
const uuidBytes = 16

// shortUID returns a UUID in 22 bytes instead of 36: an alias has little room. It reports false
// for another text, such as the UID of a static pod.
func shortUID(uid string) (string, bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(uid, "-", ""))
	if err != nil || len(raw) != uuidBytes || uuidText(raw) != uid {
		return "", false
	}
	return base64.RawURLEncoding.EncodeToString(raw), true
}

// longUID returns the UUID that shortUID has shortened.
func longUID(short string) (string, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(short)
	if err != nil || len(raw) != uuidBytes {
		return "", fmt.Errorf("%q: want a UUID in base64", short)
	}
	return uuidText(raw), nil
}

func uuidText(raw []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}
