package console

import "testing"

// Every role against every permission, so that a new one of either is decided here.
func TestEachRoleHasItsPermissionsAndNoOther(t *testing.T) {
	want := map[Role][]bool{ // mayRead, mayWrite, mayDecide, mayShare, mayKeys
		None: {false, false, false, false, false}, Viewer: {true, false, false, false, false}, Member: {true, true, true, true, true},
		Member + 1: {false, false, false, false, false}, -1: {false, false, false, false, false},
	}
	for role, has := range want {
		for p, w := range has {
			if got := role.has(permission(p)); got != w {
				t.Errorf("role %d, permission %d: %v, want %v", role, p, got, w)
			}
		}
		if role.has(permission(len(has))) {
			t.Errorf("role %d has a permission that does not exist", role)
		}
	}
}
