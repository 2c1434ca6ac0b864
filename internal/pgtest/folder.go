//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	folderPrefix = "confirmexec-pg-"
	lockName     = "owner.lock"
	leftoverAge  = time.Hour
)

// nobody is whom the server runs as when we are root, since PostgreSQL refuses to be root.
const nobody = 65534

// folder holds everything that a throw-away server writes. Its lock is held while the owning process lives.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder that the server's user can reach and write.
func newFolder() (*folder, error) {
	parent := temporaryParent()
	removeLeftovers(parent)
	path, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
	if err := f.prepare(); err != nil {
		f.remove()
		return nil, fmt.Errorf("prepare the server's folder: %w", err)
	}
	return f, nil
}

func (f *folder) prepare() error {
	lock, err := os.OpenFile(filepath.Join(f.path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	f.lock = lock
	if err := tryLock(lock); err != nil {
		return err
	}
	if !isRoot() {
		return nil
	}
	return os.Chown(f.path, nobody, nobody)
}

// make makes a folder inside for the server's user.
func (f *folder) make(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil || !isRoot() {
		return err
	}
	return os.Chown(path, nobody, nobody)
}

func (f *folder) remove() {
	_ = os.RemoveAll(f.path)
	if f.lock != nil {
		_ = f.lock.Close()
	}
}

func (f *folder) data() string { return filepath.Join(f.path, "data") }

// temporaryParent is the temporary folder, or another one if the server's user cannot get there.
func temporaryParent() string {
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if !isRoot() || traversable(parent) {
			return parent
		}
	}
	return os.TempDir()
}

// traversable reports whether every user can pass through the folder and all its parents.
func traversable(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// removeLeftovers removes old folders of processes that were killed: nobody holds their lock any more. A server that
// outlived its process there notices the missing files and ends.
func removeLeftovers(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err == nil && info.IsDir() && time.Since(info.ModTime()) > leftoverAge {
			removeIfUnlocked(path)
		}
	}
}

func removeIfUnlocked(path string) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = lock.Close() }()
	if tryLock(lock) == nil {
		_ = os.RemoveAll(path)
	}
}

func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func isRoot() bool { return os.Geteuid() == 0 }
