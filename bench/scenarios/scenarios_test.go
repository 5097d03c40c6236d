package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheShippedScenariosAreValidAndNamedAsTheirFiles(t *testing.T) {
	all, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 4 {
		t.Errorf("%d scenarios", len(all))
	}
	for _, s := range all {
		if _, err := os.Stat(s.Name + ".yaml"); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if found, err := Find(s.Name); err != nil || found.About != s.About {
			t.Errorf("%s is not found: %v", s.Name, err)
		}
	}
}

const good = `name: mine
about: one line
duration: 1s
streams:
  - name: a
    operation: sign
    spec: ECC_NIST_P256
    bytes: 64
    arrivals: constant
    rate: 10
`

func TestAScenarioIsReadFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Find(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Streams[0].Keys != 1 || s.Patience != defaultPatience || s.Seed != 1 || len(s.Steps) != 1 || s.Streams[0].Rate != 10 {
		t.Errorf("%+v", s)
	}
	if _, err := Find("nothing"); err == nil || !strings.Contains(err.Error(), "mixed") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestWhatIsWrongInAScenarioIsNamed(t *testing.T) {
	for want, change := range map[string][2]string{
		"field loops not found":   {"duration: 1s", "loops: 3"},
		"duration: must be":       {"duration: 1s", "duration: 0s"},
		"warm_up: must be":        {"duration: 1s", "duration: 1s\nwarm_up: -1s"},
		"patience: must be":       {"duration: 1s", "duration: 1s\npatience: 0s"},
		"steps: must be":          {"duration: 1s", "duration: 1s\nsteps: [2, 1]"},
		"steps[0]: must be":       {"duration: 1s", "duration: 1s\nsteps: [0, 1]"},
		"name: must be":           {"name: mine", "name: My load"},
		"about: must be":          {"about: one line", "about: ''"},
		"streams[0].name":         {"name: a\n", "name: A\n"},
		"streams[0].operation":    {"operation: sign", "operation: decrypt"},
		"streams[0].spec":         {"spec: ECC_NIST_P256", "spec: ''"},
		"streams[0].bytes":        {"bytes: 64", "bytes: 0"},
		"streams[0].keys":         {"bytes: 64", "bytes: 64\n    keys: -1"},
		"streams[0].arrivals":     {"arrivals: constant", "arrivals: often"},
		"streams[0].rate":         {"rate: 10", "rate: 200000"},
		"streams[0].clients":      {"rate: 10", "rate: 10\n    clients: 1"},
		"second document":         {"    rate: 10\n", "    rate: 10\n---\nname: x\n"},
		"cannot unmarshal":        {"duration: 1s", "duration: soon"},
		"streams[0].rate: must b": {"arrivals: constant", "arrivals: closed"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%q changes nothing", change)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
