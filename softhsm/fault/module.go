package fault

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed module/*.c module/*.h
var sources embed.FS

// Library is the built module, of which any number of copies can be put
// before modules.
type Library struct{ path string }

// Build compiles the module into the folder dir. CC names another compiler
// than cc.
func Build(dir string) (*Library, error) {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	files, err := writeSources(dir)
	if err != nil {
		return nil, err
	}
	l := &Library{filepath.Join(dir, "fault.so")}
	args := append([]string{"-std=gnu17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC",
		"-fvisibility=hidden", "-o", l.path}, files...)
	out, err := exec.Command(compiler, append(args, "-lcrypto", "-ldl", "-lpthread")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("building the fault module: %w\n%s", err, out)
	}
	return l, nil
}

// writeSources writes the sources into the folder dir and returns the paths of
// those to compile.
func writeSources(dir string) (files []string, err error) {
	names, err := fs.Glob(sources, "module/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		source, err := sources.ReadFile(name)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, source, 0o600); err != nil {
			return nil, err
		}
		if filepath.Ext(path) == ".c" {
			files = append(files, path)
		}
	}
	return files, nil
}

// Module is a copy of the library before a real module. Its methods are safe
// for concurrent use, with calls into the module as well, except that Close
// must be the last.
type Module struct {
	path    string
	control *control
	mapped  []byte
}

// Front puts a copy of the library, made in the folder dir, before the real
// module at the absolute path. It lets every call pass until told otherwise.
func (l *Library) Front(dir, real string) (*Module, error) {
	if !filepath.IsAbs(real) || len(real) >= pathSize {
		return nil, errors.New("the real module's path must be absolute and shorter than 1024 bytes")
	}
	m := &Module{path: filepath.Join(dir, "fault-"+filepath.Base(real))}
	library, err := os.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.path, library, 0o700); err != nil {
		return nil, err
	}
	if err := m.mapControl(); err != nil {
		return nil, fmt.Errorf("the fault module's control file: %w", err)
	}
	m.control.magic = controlMagic
	copy(m.control.module[:], real)
	return m, nil
}

func (m *Module) mapControl() error {
	file, err := os.OpenFile(m.path+".control", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	size := int(unsafe.Sizeof(control{}))
	if err := file.Truncate(int64(size)); err != nil {
		return err
	}
	m.mapped, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m.control = (*control)(unsafe.Pointer(unsafe.SliceData(m.mapped)))
	return nil
}

// OfferSM lets the module offer keys of SM2, SM4 and HMAC-SM3, as vendors' do
// (module/sm.h has the numbers). It is to be called before anything loads the
// module, and every token of a domain must be behind such a module to use the
// keys.
func (m *Module) OfferSM() { m.control.sm = 1 }

// Path returns the absolute path of the module, to be opened in place of the
// real one.
func (m *Module) Path() string { return m.path }

// Close lets go of the control file; the module keeps doing what it was told
// last.
func (m *Module) Close() error { return unix.Munmap(m.mapped) }
