package postgres

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	writeBackEvery = 100 * time.Millisecond
	lookEvery      = 10 // of those times: for files that grow
	lookSeldom     = 40 // while none does
)

// writeBack has the system write, soon and little by little, what the server
// adds to the files of its databases, until it ends. The server makes a file
// longer with pages of zeros, which it asks nobody to write: a checkpoint, or
// the system after half a minute, finds hundreds of megabytes of them, and who
// commits meanwhile waits a tenth of a second.
func writeBack(databases string, ended <-chan struct{}) {
	sizes, _ := grown(databases, nil)
	var growing []string
	tick := time.NewTicker(writeBackEvery)
	defer tick.Stop()
	for left := lookEvery; ; left-- {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if left == 0 {
			sizes, growing = grown(databases, sizes)
			left = lookEvery
			if len(growing) == 0 {
				left = lookSeldom
			}
		}
		for _, path := range growing {
			beginWriting(path)
		}
	}
}

// grown returns the sizes of the databases' files, and the files that had
// another size before.
func grown(databases string, before map[string]int64) (sizes map[string]int64, growing []string) {
	sizes = make(map[string]int64, len(before))
	files, _ := fs.Glob(os.DirFS(databases), "*/*") // it fails for a bad pattern alone
	for _, name := range files {
		path := filepath.Join(databases, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // it was dropped just now
		}
		sizes[path] = info.Size()
		if sizes[path] != before[path] {
			growing = append(growing, path)
		}
	}
	return sizes, growing
}

// beginWriting asks the system to write what it holds of a file, and does not
// wait for that. Where it cannot, a checkpoint will.
func beginWriting(path string) {
	file, err := os.Open(path)
	if err != nil {
		return // it was dropped just now
	}
	defer file.Close()
	_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
