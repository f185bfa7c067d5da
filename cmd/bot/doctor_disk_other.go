//go:build !linux

package main

import "errors"

// volumeOf is known on Linux only.
func volumeOf(string) (volume, error) { return volume{}, errors.ErrUnsupported }
