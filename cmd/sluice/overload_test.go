package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// crowd is how large overload is: SLUICE_CHAOS=full asks for all of it.
func crowd(short, full int) int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return full
	}
	return short
}

// What overload may take of a process, beside what it took before.
const (
	// memoryGrowth bounds the resident memory of everything but connections: the
	// room for one tenant's bodies, half as much while they grow, decoded ones,
	// and as much again that the garbage collector has not come to.
	memoryGrowth = 160 << 20
	// memoryEach bounds that of a connection: its buffers, its stack and what the
	// garbage collector lets lie of them.
	memoryEach = 64 << 10
)

// overloaded is a service with a victim, another tenant than those who attack.
type overloaded struct {
	*devProcess
	attacker string // the demo tenant's credential
	victim   string
	client   *http.Client // the victim's
}

func startOverloaded(t *testing.T) *overloaded {
	t.Helper()
	wiretest.Require(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	t.Setenv("GOGC", "100") // so that its memory is what lives, and not nine times that
	p := startDev(t, program, filepath.Join(dir, "data"))
	o := &overloaded{devProcess: p, attacker: p.credential(t, "demo.credential"), client: &http.Client{Timeout: 10 * time.Second}}
	operator := p.credential(t, "operator.credential")
	o.must(t, operator, "/v1/tenants", `{"name":"victim","tier":"gold","force":true}`)
	minted := o.must(t, operator, "/v1/tenants/victim/credentials", `{"name":"app","scopes":["key:*"]}`)
	_, rest, _ := strings.Cut(minted, `"credential":"`)
	o.victim, _, _ = strings.Cut(rest, `"`)
	o.must(t, o.victim, "/v1/keys", `{"name":"k","spec":"AES_256"}`)
	return o
}

func (o *overloaded) post(credential, path, body string) (int, string, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+o.address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	r.Header.Set("Content-Type", "application/json")
	response, err := o.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

func (o *overloaded) must(t *testing.T, credential, path, body string) string {
	t.Helper()
	status, answer, err := o.post(credential, path, body)
	if err != nil || status/100 != 2 {
		t.Fatalf("%s: %d %s %v", path, status, answer, err)
	}
	return answer
}

// watch has the victim at work until the attack is over, and returns its
// latencies: every call of it must succeed.
func (o *overloaded) watch(t *testing.T, attack func()) (latencies []time.Duration) {
	t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); attack() }()
	for {
		began := time.Now()
		status, answer, err := o.post(o.victim, "/v1/keys/k/encrypt", `{"plaintext":"aGVsbG8="}`)
		if err != nil || status != http.StatusOK {
			t.Errorf("the victim: %d %s %v", status, answer, err)
		}
		latencies = append(latencies, time.Since(began))
		select {
		case <-over:
			slices.Sort(latencies)
			return latencies
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// resident is the process's resident memory in bytes, files its open files.
func (o *overloaded) resident(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

func (o *overloaded) files(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// suffers runs an attack beside the victim and checks that the process stays
// within its memory, and gives back the files in time.
func (o *overloaded) suffers(t *testing.T, connections int, attack func()) {
	t.Helper()
	calm := o.watch(t, func() { <-time.After(time.Second) })
	memory, files := o.resident(t), o.files(t)
	var most int64
	var mostFiles int
	latencies := o.watch(t, func() {
		done := make(chan struct{})
		go func() { defer close(done); attack() }()
		for {
			most, mostFiles = max(most, o.resident(t)), max(mostFiles, o.files(t))
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Logf("memory %d MiB + %d MiB, files %d + %d; the victim's P99 %v, alone %v, of %d calls", memory>>20, (most-memory)>>20, files, mostFiles-files,
		latencies[len(latencies)*99/100], calm[len(calm)*99/100], len(latencies))
	if grown := most - memory; grown > memoryGrowth+int64(connections)*memoryEach {
		t.Errorf("the process has grown by %d MiB", grown>>20)
	}
	if mostFiles-files > connections+ownFiles {
		t.Errorf("%d files more are open", mostFiles-files)
	}
	for end := time.Now().Add(time.Minute); o.files(t) > files+64; <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files are open, before it were %d", o.files(t), files)
		}
	}
}

// dialAll opens connections, each of which begins with a text, and closes them
// at the end of the test.
func (o *overloaded) dialAll(t *testing.T, n int, text func(i int) string) []net.Conn {
	t.Helper()
	var mu sync.Mutex
	var list []net.Conn
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			for i := w; i < n; i += 16 {
				c, err := net.Dial("tcp", o.address)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.WriteString(c, text(i)); err != nil {
					t.Log(err) // the service may have closed it
				}
				mu.Lock()
				list = append(list, c)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return list
}

func closeAll(list []net.Conn) {
	for _, c := range list {
		c.Close()
	}
}

// TestSlowHeadersHarmNobody (R11): connections that send their headers byte by
// byte are closed at the deadline, and take little until then.
func TestSlowHeadersHarmNobody(t *testing.T) {
	o := startOverloaded(t)
	n := crowd(500, 10_000)
	o.suffers(t, n, func() {
		list := o.dialAll(t, n, func(int) string { return "POST /v1/random HTTP/1.1\r\nHost: x\r\n" })
		defer closeAll(list)
		for end := time.Now().Add(7 * time.Second); time.Now().Before(end); <-time.After(500 * time.Millisecond) {
			for _, c := range list {
				io.WriteString(c, "A: b\r\n") // it may be closed by now
			}
		}
		open := 0
		for _, c := range list {
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
				open++
			}
		}
		if open > 0 {
			t.Errorf("%d of %d slow connections are open after the deadline", open, n)
		}
	})
}

// TestSlowBodiesHarmNobody (R11): a tenant that announces large bodies on many
// connections, and hardly sends them, takes its own part of the room for bodies
// and no more.
func TestSlowBodiesHarmNobody(t *testing.T) {
	o := startOverloaded(t)
	n := crowd(300, 1000)
	request := "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + o.attacker +
		"\r\nContent-Length: 1048576\r\n\r\n" + `{"items":[` + strings.Repeat(" ", 4096)
	o.suffers(t, n, func() {
		list := o.dialAll(t, n, func(int) string { return request })
		defer closeAll(list)
		var refused, others atomic.Int64
		var all sync.WaitGroup
		for _, c := range list {
			all.Go(func() {
				c.SetReadDeadline(time.Now().Add(3 * time.Second))
				switch answer, err := http.ReadResponse(bufio.NewReader(c), nil); {
				case err != nil: // it is being read
				case answer.StatusCode == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					others.Add(1)
				}
			})
		}
		all.Wait()
		if refused.Load() < int64(n/2) || others.Load() > 0 {
			t.Errorf("of %d bodies %d were refused for want of room, %d for another reason", n, refused.Load(), others.Load())
		}
	})
}

// TestIdleAndBusyConnectionsHarmNobody (R11): many connections that wait, and a
// tenth as many that work at once.
func TestIdleAndBusyConnectionsHarmNobody(t *testing.T) {
	o := startOverloaded(t)
	idle, busy := crowd(2000, 10_000), crowd(200, 1000)
	o.must(t, o.attacker, "/v1/keys", `{"name":"busy","spec":"AES_256"}`)
	body := `{"plaintext":"aGVsbG8="}`
	request := fmt.Sprintf("POST /v1/keys/busy/encrypt HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		o.attacker, len(body), body)
	o.suffers(t, idle+busy, func() {
		list := o.dialAll(t, idle, func(int) string { return "" })
		defer closeAll(list)
		var answered atomic.Int64
		statuses := map[int]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range busy {
			all.Go(func() {
				c, err := net.Dial("tcp", o.address)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				reader := bufio.NewReader(c)
				for range 10 {
					if _, err := io.WriteString(c, request); err != nil {
						t.Error(err)
						return
					}
					answer, err := http.ReadResponse(reader, nil)
					if err == nil {
						_, err = io.Copy(io.Discard, answer.Body)
					}
					if err != nil {
						t.Error(err)
						return
					}
					answered.Add(1)
					mu.Lock()
					statuses[answer.StatusCode]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for status := range statuses {
			if !slices.Contains([]int{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable}, status) {
				t.Errorf("busy connections were answered %v", statuses)
			}
		}
		t.Logf("%d answers: %v", answered.Load(), statuses)
	})
}

// TestFloodsOfHeadersAndBodiesHarmNobody (R11): what is too long is refused as
// soon as that shows.
func TestFloodsOfHeadersAndBodiesHarmNobody(t *testing.T) {
	o := startOverloaded(t)
	n := crowd(400, 10_000)
	headers := "POST /v1/random HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-Flood: "+strings.Repeat("a", 1000)+"\r\n", 64) + "\r\n"
	body := "POST /v1/random HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + o.attacker + "\r\n\r\n" +
		strings.Repeat("10000\r\n"+strings.Repeat("a", 0x10000)+"\r\n", 48)
	o.suffers(t, 32, func() {
		var mu sync.Mutex
		statuses := map[int]int{}
		var all sync.WaitGroup
		for w := range 16 {
			all.Go(func() {
				for i := w; i < n; i += 16 {
					text := headers
					if i%8 == 0 {
						text = body
					}
					status := o.push(text)
					mu.Lock()
					statuses[status]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		t.Logf("answers: %v", statuses) // 0: a reset overtook it
		for status := range statuses {
			if status != 0 && status != http.StatusRequestHeaderFieldsTooLarge && status != http.StatusRequestEntityTooLarge && status != http.StatusTooManyRequests {
				t.Errorf("a flood is answered %d", status)
			}
		}
	})
}

// push sends a text and returns the status of the answer, 0 for none.
func (o *overloaded) push(text string) int {
	c, err := net.Dial("tcp", o.address)
	if err != nil {
		return 0
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go io.WriteString(c, text)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	return answer.StatusCode
}

// TestStrangersWithoutNumberHarmNobody (R11): a credential that is none costs
// nothing that lasts, however many there are.
func TestStrangersWithoutNumberHarmNobody(t *testing.T) {
	o := startOverloaded(t)
	n := crowd(10_000, 1_000_000)
	o.suffers(t, 64, func() {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 20 * time.Second}
		defer client.CloseIdleConnections()
		_, rest, _ := strings.Cut(o.attacker, "_")
		id, secret, _ := strings.Cut(rest, "_")
		var all sync.WaitGroup
		for w := range 16 {
			all.Go(func() {
				for i := w; i < n; i += 16 {
					// Of one that is there every second secret is wrong; the others
					// are wrong as a whole.
					token := fmt.Sprintf("slk_%s_%s", id, scrambled(secret))
					if i%2 == 0 {
						token = fmt.Sprintf("slk_%s_%s", scrambled(id), secret)
					}
					r, err := http.NewRequest(http.MethodGet, "http://"+o.address+"/v1/keys", nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Authorization", "Bearer "+token)
					answer, err := client.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					if answer.StatusCode != http.StatusUnauthorized {
						t.Errorf("a stranger is answered %d", answer.StatusCode)
					}
				}
			})
		}
		all.Wait()
	})
}

// scrambled is a text of the letters of base32, as long as another.
func scrambled(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz234567"[rand.IntN(32)]
	}
	return string(b)
}
