package bolt

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropResident lets go of the pages of the mapped file that opening it has
// touched: bbolt looks at every page once to find the free ones, and they would
// count as this process's memory until the kernel wants them back. They come
// back one by one when they are read. Failure costs nothing but that memory.
func dropResident(path string) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) != 6 || fields[5] != path || !strings.HasPrefix(fields[1], "r--s") {
			continue // only the shared, read-only mapping: its pages are the file's
		}
		from, to, _ := strings.Cut(fields[0], "-")
		a, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			continue
		}
		b, err := strconv.ParseUint(to, 16, 64)
		if err != nil || b <= a {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(a), uintptr(b-a), unix.MADV_DONTNEED)
	}
}
