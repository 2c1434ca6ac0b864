package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// WithDSN returns the connection string, in either of PostgreSQL's two forms, with the named settings replaced:
// WithDSN(dsn, "dbname", "other", "sslmode", "disable").
func WithDSN(dsn string, settings ...string) (string, error) {
	if len(settings)%2 != 0 {
		return "", fmt.Errorf("settings come in pairs, got %d values", len(settings))
	}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return withURL(dsn, settings)
	}
	for i := 0; i < len(settings); i += 2 {
		dsn += " " + settings[i] + "=" + quoteSetting(settings[i+1]) // the last one counts
	}
	return dsn, nil
}

func withURL(dsn string, settings []string) (string, error) {
	parsed, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("the connection string is not a URL") // err would show its password
	}
	query := parsed.Query()
	for i := 0; i < len(settings); i += 2 {
		query.Del(settings[i])
		setURL(parsed, query, settings[i], settings[i+1])
	}
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}

func setURL(parsed *url.URL, query url.Values, name, value string) {
	switch name {
	case "user":
		parsed.User = url.User(value)
	case "password":
		parsed.User = url.UserPassword(parsed.User.Username(), value)
	case "dbname":
		query.Del("database")
		parsed.Path = "/" + value
	case "host":
		parsed.Host = net.JoinHostPort(value, parsed.Port())
	case "port":
		parsed.Host = net.JoinHostPort(parsed.Hostname(), value)
	default:
		query.Set(name, value)
	}
}

// quoteSetting quotes a value of the keyword/value form.
func quoteSetting(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
