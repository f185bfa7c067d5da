package doctor

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkTypes are the file systems that are somewhere else, by the numbers that statfs(2)
// has for them.
func networkTypes() map[int64]string {
	return map[int64]string{
		unix.NFS_SUPER_MAGIC: "nfs", unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb",
		unix.CEPH_SUPER_MAGIC: "ceph", unix.AFS_SUPER_MAGIC: "afs", unix.AFS_FS_MAGIC: "afs", unix.V9FS_MAGIC: "9p", unix.CODA_SUPER_MAGIC: "coda",
	}
}

// volumeOf asks statfs(2) about a directory.
func volumeOf(dir string) (volume, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return volume{}, os.NewSyscallError("statfs", err)
	}
	block := uint64(max(int64(s.Bsize), 0))                                                                                       //nolint:unconvert // 32 bits on some machines
	return volume{free: s.Bavail * block, size: s.Blocks * block, network: networkTypes()[int64(uint32(s.Type)&0xffffffff)]}, nil //nolint:gosec // magic numbers have 32 bits
}
