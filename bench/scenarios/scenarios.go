package scenarios

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Operation is what a stream asks for.
type Operation string

// The operations that every kind of target can be asked for.
const (
	Encrypt Operation = "encrypt"
	Sign    Operation = "sign"
)

// Arrivals is how requests of a stream come.
type Arrivals string

// The ways that requests come: at random, at equal intervals, or when the last
// one was answered.
const (
	Poisson  Arrivals = "poisson"
	Constant Arrivals = "constant"
	Closed   Arrivals = "closed"
)

// Scenario is a load.
type Scenario struct {
	Name     string        `yaml:"name"`
	About    string        `yaml:"about"`
	WarmUp   time.Duration `yaml:"warm_up"`
	Duration time.Duration `yaml:"duration"`
	Patience time.Duration `yaml:"patience"`
	Seed     uint64        `yaml:"seed"`
	Steps    []float64     `yaml:"steps"`
	Streams  []Stream      `yaml:"streams"`
}

// Stream is a source of requests.
type Stream struct {
	Name      string    `yaml:"name"`
	Operation Operation `yaml:"operation"`
	Spec      string    `yaml:"spec"`
	Bytes     int       `yaml:"bytes"`
	Keys      int       `yaml:"keys"`
	Arrivals  Arrivals  `yaml:"arrivals"`
	Rate      float64   `yaml:"rate"`
	Clients   int       `yaml:"clients"`
}

// Bounds of a scenario: what one machine can send, and what a mistaken number
// must not go beyond.
const (
	maxDuration = 24 * time.Hour
	maxPatience = time.Minute
	maxRate     = 100_000 // requests/s of a stream at its highest step
	maxClients  = 1024
	maxKeys     = 1024
	maxBytes    = 4096 // what every target takes in one call
	maxStreams  = 32
	maxSteps    = 32
	maxFile     = 64 << 10 // bytes
)

const defaultPatience = 5 * time.Second

//go:embed *.yaml
var shipped embed.FS

// Shipped returns the scenarios that come with the program, by name.
func Shipped() ([]*Scenario, error) {
	files, err := shipped.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, f := range files {
		text, err := shipped.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		s, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Scenario) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Find returns the shipped scenario of a name, or the one in a file. What ends
// in .yaml or .yml or has a slash is a file.
func Find(name string) (*Scenario, error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return read(name)
	}
	all, err := Shipped()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("there is no scenario %q; there are %s, and files (*.yaml)", name, strings.Join(names, ", "))
}

func read(file string) (*Scenario, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening the scenario: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the scenario: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("the scenario has more than %d bytes", maxFile)
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// Parse reads a scenario and checks all of it.
func Parse(text []byte) (*Scenario, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	s := &Scenario{Patience: defaultPatience, Seed: 1, Steps: []float64{1}}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("not a scenario: %w", err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a scenario: there is a second document in the file")
	}
	for i := range s.Streams {
		if s.Streams[i].Keys == 0 {
			s.Streams[i].Keys = 1
		}
	}
	return s, s.validate()
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

func (s *Scenario) validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: must be %s", field, want))
		}
	}
	const name = "1 to 40 lower-case letters, digits and hyphens"
	check(nameForm.MatchString(s.Name), "name", name)
	check(s.About != "" && !strings.Contains(s.About, "\n"), "about", "one line")
	check(s.WarmUp >= 0 && s.WarmUp <= maxDuration, "warm_up", "0 to "+maxDuration.String())
	check(s.Duration >= 100*time.Millisecond && s.Duration <= maxDuration, "duration", "100ms to "+maxDuration.String())
	check(s.Patience > 0 && s.Patience <= maxPatience, "patience", "more than 0, to "+maxPatience.String())
	check(len(s.Steps) > 0 && len(s.Steps) <= maxSteps && slices.IsSorted(s.Steps), "steps", fmt.Sprintf("1 to %d factors that ascend", maxSteps))
	for i, step := range s.Steps {
		check(step > 0 && step <= maxRate, fmt.Sprintf("steps[%d]", i), fmt.Sprintf("more than 0, to %d", maxRate))
	}
	check(len(s.Streams) > 0 && len(s.Streams) <= maxStreams, "streams", fmt.Sprintf("1 to %d", maxStreams))
	seen := make(map[string]bool)
	for i := range s.Streams {
		st := &s.Streams[i]
		at := func(field string) string { return fmt.Sprintf("streams[%d].%s", i, field) }
		check(nameForm.MatchString(st.Name) && !seen[st.Name], at("name"), name+", another one than the streams before")
		seen[st.Name] = true
		check(st.Operation == Encrypt || st.Operation == Sign, at("operation"), "encrypt or sign")
		check(st.Spec != "", at("spec"), "a key's spec, as AES_256")
		check(st.Bytes >= 1 && st.Bytes <= maxBytes, at("bytes"), fmt.Sprintf("1 to %d", maxBytes))
		check(st.Keys >= 1 && st.Keys <= maxKeys, at("keys"), fmt.Sprintf("1 to %d", maxKeys))
		s.validateArrivals(st, at, check)
	}
	return errors.Join(errs...)
}

func (s *Scenario) validateArrivals(st *Stream, at func(string) string, check func(bool, string, string)) {
	switch st.Arrivals {
	case Closed:
		check(st.Rate == 0, at("rate"), "absent: a closed stream has clients")
		check(st.Clients >= 1 && st.Clients <= maxClients, at("clients"), fmt.Sprintf("1 to %d", maxClients))
	case Poisson, Constant:
		check(st.Clients == 0, at("clients"), "absent: only a closed stream has clients")
		highest := 1.0
		if len(s.Steps) > 0 {
			highest = s.Steps[len(s.Steps)-1]
		}
		check(st.Rate > 0 && st.Rate*highest <= maxRate, at("rate"), fmt.Sprintf("more than 0, to %d at the highest step", maxRate))
	default:
		check(false, at("arrivals"), "poisson, constant or closed")
	}
}
