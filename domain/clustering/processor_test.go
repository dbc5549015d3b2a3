package clustering

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// The compiler may fuse a product with a sum where the processor can, which
// rounds once instead of twice. An amd64 by itself does not, an arm64 does.
func TestNoProductIsFusedWithASum(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", "kindred/domain/clustering", "kindred/domain/traits")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	assembly, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.1000s", err, assembly)
	}
	if product := regexp.MustCompile(`\sFMULD\s`); !product.Match(assembly) {
		t.Errorf("no products are seen: %.1000s", assembly)
	}
	for _, fused := range regexp.MustCompile(`\((.*)\)\s(FN?M(?:ADD|SUB)[DS])\s`).FindAllSubmatch(assembly, -1) {
		t.Errorf("%s: %s", fused[1], fused[2])
	}
}
