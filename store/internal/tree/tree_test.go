package tree_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"countersign/store/internal/tree"
)

func rows(c *tree.Cursor[int]) (keys []string, vals []int) {
	for {
		k, v, ok := c.Next()
		if !ok {
			return keys, vals
		}
		keys, vals = append(keys, string(k)), append(vals, v)
	}
}

func same(t *rapid.T, m tree.Map[int], model map[string]int) {
	keys, vals := rows(m.Ascend(nil))
	if want := slices.Sorted(maps.Keys(model)); !slices.Equal(keys, want) || m.Len() != len(model) {
		t.Fatalf("keys are %q (Len %d), want %q", keys, m.Len(), want)
	}
	for i, k := range keys {
		if vals[i] != model[k] {
			t.Fatalf("%q is %d, want %d", k, vals[i], model[k])
		}
	}
	back, _ := rows(m.Descend(nil))
	slices.Reverse(back)
	if !slices.Equal(keys, back) {
		t.Fatalf("backwards keys are %q, want %q", back, keys)
	}
}

// Every version ever made must still be what it was when it was made.
func TestMapEqualsModelAndVersionsDoNotChange(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%03d", rapid.IntRange(0, 300).Draw(t, "key")) })
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     tree.Map[int]
			model map[string]int
		}
		var versions []version
		cur := version{model: map[string]int{}}
		for i := range rapid.IntRange(0, 400).Draw(t, "start") { // deep enough for several levels
			k := fmt.Sprintf("%03d", i*7%400)
			cur.m = cur.m.Set([]byte(k), i)
			cur.model[k] = i
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				cur.m = cur.m.Freeze()
				versions = append(versions, version{cur.m, maps.Clone(cur.model)})
			case 1:
				cur.m = cur.m.Edit()
			case 2:
				if len(versions) > 0 { // go back, as a rolled back transaction does
					v := rapid.SampledFrom(versions).Draw(t, "version")
					cur = version{v.m, maps.Clone(v.model)}
				}
			case 3, 4, 5:
				k := key.Draw(t, "set")
				cur.m = cur.m.Set([]byte(k), 1000+i)
				cur.model[k] = 1000 + i
			case 6, 7:
				k := key.Draw(t, "delete")
				cur.m = cur.m.Delete([]byte(k))
				delete(cur.model, k)
			case 8: // many at once
				lo, hi := key.Draw(t, "lo"), key.Draw(t, "hi")
				for _, k := range slices.Sorted(maps.Keys(cur.model)) {
					if k >= lo && k < hi {
						cur.m = cur.m.Delete([]byte(k))
						delete(cur.model, k)
					}
				}
			case 9:
				k := key.Draw(t, "get")
				v, ok := cur.m.Get([]byte(k))
				if want, has := cur.model[k]; ok != has || v != want {
					t.Fatalf("Get(%q) = %d, %v, want %d, %v", k, v, ok, want, has)
				}
			}
		}
		same(t, cur.m, cur.model)
		for _, v := range versions {
			same(t, v.m, v.model)
		}
	})
}

func TestCursorsBeginAtTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "n")
		var m tree.Map[int]
		var all []string
		for i := range n {
			k := fmt.Sprintf("%03d", i*2)
			all = append(all, k)
			m = m.Set([]byte(k), i)
		}
		at := fmt.Sprintf("%03d", rapid.IntRange(0, 610).Draw(t, "at"))
		i, _ := slices.BinarySearch(all, at)
		if got, _ := rows(m.Ascend([]byte(at))); !slices.Equal(got, all[i:]) {
			t.Fatalf("Ascend(%q) = %q", at, got)
		}
		got, _ := rows(m.Descend([]byte(at)))
		slices.Reverse(got)
		if !slices.Equal(got, all[:i]) {
			t.Fatalf("Descend(%q) = %q", at, got)
		}
	})
}
