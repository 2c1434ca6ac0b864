package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// pingTimeout bounds the question whether an engine is there. A living one answers in milliseconds.
const pingTimeout = 3 * time.Second

// pingDocker reports as errAbsent that no Docker engine answers where the helper program would look for one.
func pingDocker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	hosts := dockerHosts()
	for _, host := range hosts {
		err := pingHost(ctx, host)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) { // the helper takes the first that is there
			return absentf("no Docker engine answers at %s: %v", host, err)
		}
	}
	return absentf("no Docker engine is there (looked at %s)", strings.Join(hosts, ", "))
}

// dockerHosts are the engine's usual addresses, unless the environment names one.
func dockerHosts() []string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return []string{host}
	}
	if runtime.GOOS == "windows" {
		return []string{"npipe:////./pipe/docker_engine"}
	}
	hosts := []string{"unix:///var/run/docker.sock"}
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" {
		hosts = append(hosts, "unix://"+filepath.Join(folder, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		hosts = append(hosts, "unix://"+filepath.Join(home, ".docker/run/docker.sock"),
			"unix://"+filepath.Join(home, ".docker/desktop/docker.sock"))
	}
	return append(hosts, fmt.Sprintf("unix:///run/user/%d/docker.sock", os.Getuid()))
}

// pingHost asks an engine for a sign of life. What cannot be asked here, such as ssh://, is left to the helper.
func pingHost(ctx context.Context, host string) error {
	address, err := url.Parse(host)
	if err != nil {
		return errors.New("the address is not a URL")
	}
	switch address.Scheme {
	case "unix":
		return ping(ctx, "unix", address.Path)
	case "tcp", "http", "https":
		return ping(ctx, "tcp", address.Host)
	case "npipe":
		_, err := os.Stat(filepath.FromSlash(address.Path))
		return err
	default:
		return nil
	}
}

// ping takes any answer for a sign of life: an engine that wants TLS refuses this question.
func ping(ctx context.Context, network, address string) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
