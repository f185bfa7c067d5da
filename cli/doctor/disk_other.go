//go:build !linux

package doctor

import "errors"

// volumeOf is known on Linux only.
func volumeOf(string) (volume, error) { return volume{}, errors.ErrUnsupported }
