package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// ErrKey is wrapped by [Parts] when the bytes were not made by [Key].
var ErrKey = errors.New("store: not a composite key")

// A part is a tag and a payload. Tags are below escape, so that a part's
// terminator can be told from an escaped zero byte by the byte that follows.
const (
	tagUint   = 0x10
	tagInt    = 0x11
	tagTime   = 0x12
	tagString = 0x20
	tagBytes  = 0x21

	terminator = 0x00
	escape     = 0xff
)

// Key encodes a tuple so that keys sort as tuples do: part by part, a tuple
// before the tuples that extend it, numbers by value, times by instant, strings
// and byte slices by their bytes. Parts of different types at the same position
// sort in the order uint64, int64, time.Time, string, []byte.
//
// Parts may be strings, integers, []byte and time.Time, and types made of a
// string or an integer; signed and unsigned integers of any width become int64
// and uint64. Times keep their nanoseconds and lose their zone. Any other type
// is a mistake in the program and panics.
//
// An integer takes 9 bytes, a time 13, a string its length plus 2 and one more
// for each zero byte in it.
func Key(parts ...any) []byte {
	size := 0
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			size += len(p) + 2
		case []byte:
			size += len(p) + 2
		default:
			size += 13
		}
	}
	key := make([]byte, 0, size+1) // room for the end of a range, see Prefix
	for _, p := range parts {
		key = appendPart(key, p)
	}
	return key
}

func appendPart(key []byte, part any) []byte {
	switch p := part.(type) {
	case string:
		return appendText(append(key, tagString), p)
	case []byte:
		return appendText(append(key, tagBytes), p)
	case uint64:
		return binary.BigEndian.AppendUint64(append(key, tagUint), p)
	case int64:
		return binary.BigEndian.AppendUint64(append(key, tagInt), flip(p))
	case time.Time:
		key = binary.BigEndian.AppendUint64(append(key, tagTime), flip(p.Unix()))
		return binary.BigEndian.AppendUint32(key, uint32(p.Nanosecond())) //nolint:gosec // below 1e9
	}
	v := reflect.ValueOf(part)
	switch {
	case v.Kind() == reflect.String:
		return appendPart(key, v.String())
	case v.CanUint():
		return appendPart(key, v.Uint())
	case v.CanInt():
		return appendPart(key, v.Int())
	}
	panic(fmt.Sprintf("store: a key part cannot be a %T", part))
}

// flip moves the sign so that the bytes of a signed number sort by value.
func flip(n int64) uint64 { return uint64(n) ^ (1 << 63) } //nolint:gosec // two's complement is meant

func unflip(n uint64) int64 { return int64(n ^ (1 << 63)) } //nolint:gosec // two's complement is meant

func appendText[T string | []byte](key []byte, s T) []byte {
	for i := range len(s) {
		key = append(key, s[i])
		if s[i] == terminator {
			key = append(key, escape)
		}
	}
	return append(key, terminator)
}

// Parts is the inverse of [Key]. The parts are string, []byte, uint64, int64
// and time.Time (in UTC). Its errors wrap [ErrKey]; what it accepts encodes
// again to the same bytes.
func Parts(key []byte) ([]any, error) {
	var parts []any
	for rest := key; len(rest) > 0; {
		tag := rest[0]
		rest = rest[1:]
		switch tag {
		case tagUint, tagInt:
			if len(rest) < 8 {
				return nil, fmt.Errorf("%w: %x ends inside a number", ErrKey, key)
			}
			n := binary.BigEndian.Uint64(rest)
			rest = rest[8:]
			if tag == tagUint {
				parts = append(parts, n)
			} else {
				parts = append(parts, unflip(n))
			}
		case tagTime:
			if len(rest) < 12 {
				return nil, fmt.Errorf("%w: %x ends inside a time", ErrKey, key)
			}
			sec, nsec := unflip(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint32(rest[8:])
			rest = rest[12:]
			t := time.Unix(sec, int64(nsec)).UTC()
			if nsec >= uint32(time.Second) || t.Unix() != sec {
				return nil, fmt.Errorf("%w: %x holds an impossible time", ErrKey, key)
			}
			parts = append(parts, t)
		case tagString, tagBytes:
			text, n := cutText(rest)
			if n < 0 {
				return nil, fmt.Errorf("%w: %x ends inside a text", ErrKey, key)
			}
			rest = rest[n:]
			if tag == tagString {
				parts = append(parts, string(text))
			} else {
				parts = append(parts, text)
			}
		default:
			return nil, fmt.Errorf("%w: %x has no part of type %#02x", ErrKey, key, tag)
		}
	}
	return parts, nil
}

// cutText returns the text at the head of b and how many bytes it took, -1
// when its end is missing.
func cutText(b []byte) ([]byte, int) {
	text := []byte{}
	for i := 0; i < len(b); i++ {
		if b[i] != terminator {
			text = append(text, b[i])
			continue
		}
		if i+1 < len(b) && b[i+1] == escape {
			text = append(text, terminator)
			i++
			continue
		}
		return text, i + 1
	}
	return nil, -1
}

// Prefix returns the range of all tuples that begin with these parts, including
// the tuple itself, for [Tx].Scan: start <= key < end. The range contains no other
// composite key.
func Prefix(parts ...any) (start, end []byte) {
	start = Key(parts...)
	end = append(slices.Clip(start), escape)
	return start, end
}

// Format formats a key for people: its parts joined by slashes, or hexadecimal
// digits if it is not a composite key.
func Format(key []byte) string {
	parts, err := Parts(key)
	if err != nil || len(parts) == 0 {
		return fmt.Sprintf("%x", key)
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		switch p := p.(type) {
		case string:
			fmt.Fprintf(&b, "%q", p)
		case time.Time:
			b.WriteString(p.Format(time.RFC3339Nano))
		case []byte:
			fmt.Fprintf(&b, "%x", p)
		default:
			fmt.Fprint(&b, p)
		}
	}
	return b.String()
}
