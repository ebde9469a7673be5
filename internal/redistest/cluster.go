//go:build unix

package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/freeport"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// StartCluster starts n servers that share the slots evenly, without replicas.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	nodes := make([]*Server, n)
	buses := make([]string, n)
	for i := range nodes {
		buses[i] = strconv.Itoa(freeport.Pick(t))
		nodes[i] = Start(t, "--save", "", "--cluster-enabled", "yes", "--cluster-port", buses[i], "--cluster-node-timeout", "60000")
	}
	for i, s := range nodes {
		from, to := i*slots/n, (i+1)*slots/n-1
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			s.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].port), buses[0])
		}
	}
	known := "cluster_known_nodes:" + strconv.Itoa(n)
	for limit := time.Now().Add(patience); ; {
		ready := 0
		for _, s := range nodes {
			info := s.Do("CLUSTER", "INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known) && strings.Contains(info, "cluster_slots_ok:16384") {
				ready++
			}
		}
		if ready == n {
			return nodes
		}
		if time.Now().After(limit) {
			t.Fatalf("%d of %d nodes of a cluster are ready", ready, n)
		}
	}
}

// Do sends one command over a connection of its own and returns a status, a
// number or a bulk string as text. An error of the server ends the test.
func (s *Server) Do(words ...string) string {
	s.t.Helper()
	c, err := (&net.Dialer{Timeout: patience}).DialContext(s.t.Context(), "tcp", s.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		s.t.Fatal(err)
	}
	answer, err := reply(bufio.NewReader(c))
	if err != nil {
		s.t.Fatalf("%s: %v", words[0], err)
	}
	return answer
}

func reply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n)
		for read := 0; read < n; {
			more, err := r.Read(text[read:])
			if err != nil {
				return "", err
			}
			read += more
		}
		return string(text), nil
	}
	return "", fmt.Errorf("an answer that begins with %q", line)
}
