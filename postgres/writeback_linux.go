package postgres

import (
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
	found, _ := os.ReadDir(databases) // of what cannot be read, a checkpoint writes
	for _, database := range found {
		dir, err := os.Open(filepath.Join(databases, database.Name()))
		if err != nil {
			continue // it was dropped just now
		}
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			var file unix.Stat_t // os.Lstat leaves 400 bytes of garbage for each of 1,500 files
			if unix.Fstatat(int(dir.Fd()), name, &file, unix.AT_SYMLINK_NOFOLLOW) != nil || file.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			path := filepath.Join(dir.Name(), name)
			if sizes[path] = file.Size; file.Size != before[path] {
				growing = append(growing, path)
			}
		}
		_ = dir.Close() // nothing was written
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
