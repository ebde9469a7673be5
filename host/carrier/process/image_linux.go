package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Image is a program whose bytes cannot change any more: what was hashed is
// what runs, at the first start and at the last. It is safe for concurrent use.
type Image struct {
	file   *os.File
	digest string
}

// NewImage keeps program in memory that nobody can write to. It must be an ELF
// file: a script would be read by its interpreter from a name, which may lead
// anywhere by then.
func NewImage(name string, program []byte) (_ *Image, err error) {
	if len(program) < 4 || string(program[:4]) != "\x7fELF" {
		return nil, errors.New("the program of a plugin is an ELF executable")
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	i := &Image{file: os.NewFile(uintptr(fd), name)}
	defer func() {
		if err != nil {
			_ = i.Close()
		}
	}()
	if _, err := i.file.Write(program); err != nil {
		return nil, fmt.Errorf("write an image: %w", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(i.file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal an image: %w", err)
	}
	sum := sha256.Sum256(program)
	i.digest = hex.EncodeToString(sum[:])
	return i, nil
}

// Self is the program that is running, even if its file was replaced or removed
// since.
func Self() (*Image, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("open this program: %w", err)
	}
	return &Image{file: f}, nil
}

// SHA256 is the digest in lower-case hex; empty for Self.
func (i *Image) SHA256() string { return i.digest }

// Close frees the image. Processes that run go on.
func (i *Image) Close() error { return i.file.Close() }

// path is by what a child of this process executes the image: the descriptor
// itself, which closes as the program begins.
func (i *Image) path() string { return "/proc/self/fd/" + strconv.Itoa(int(i.file.Fd())) }
