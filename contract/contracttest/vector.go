package contracttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
)

// folder is where the vectors of the contract's first version are in confirmexec.Vectors, one folder per topic.
const folder = "testdata/vectors/v1"

// file is one file of vectors of one topic.
type file struct {
	Topic  string   `json:"topic"`
	About  string   `json:"about"`
	Source string   `json:"source"` // where the expected values come from
	Cases  []vector `json:"cases"`
}

// vector is one case: its name, what is given, and what is expected.
type vector struct {
	Name string          `json:"name"`
	In   json.RawMessage `json:"in"`
	Want json.RawMessage `json:"want"`

	Preimage     string `json:"preimage"`      // of a digest, in hexadecimal: for whoever looks for a difference
	BeyondSchema string `json:"beyond_schema"` // why no JSON Schema can see what is wrong
}

// load returns the vectors by topic. Whatever is not as this suite knows it is a problem: nothing is passed over.
func load(vectors fs.FS) (map[string][]vector, []Failure) {
	all := map[string][]vector{}
	var problems []Failure
	folders, err := fs.ReadDir(vectors, folder)
	if err != nil {
		return nil, []Failure{{folder, err.Error()}}
	}
	for _, f := range folders {
		cases, err := loadTopic(vectors, f.Name())
		if err != nil {
			problems = append(problems, Failure{f.Name(), err.Error()})
		}
		all[f.Name()] = cases
	}
	known := map[string]bool{}
	for _, topic := range topics {
		known[topic.name] = true
		if len(all[topic.name]) == 0 {
			problems = append(problems, Failure{topic.name, "there are no vectors of this topic"})
		}
	}
	for name := range all {
		if !known[name] {
			problems = append(problems, Failure{name, "this suite does not know the topic: its version is older than the vectors'"})
		}
	}
	return all, problems
}

func loadTopic(vectors fs.FS, topic string) ([]vector, error) {
	files, err := fs.Glob(vectors, path.Join(folder, topic, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []vector
	seen := map[string]bool{}
	for _, name := range files {
		data, err := fs.ReadFile(vectors, name)
		if err != nil {
			return nil, err
		}
		var f file
		if err := strict(data, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(name), err)
		}
		if f.Topic != topic {
			return nil, fmt.Errorf("%s: its topic is %q", path.Base(name), f.Topic)
		}
		for _, v := range f.Cases {
			if v.Name == "" || strings.Contains(v.Name, "/") || seen[v.Name] {
				return nil, fmt.Errorf("%s: the name %q is empty, holds a slash or is there twice", path.Base(name), v.Name)
			}
			seen[v.Name] = true
		}
		all = append(all, f.Cases...)
	}
	return all, nil
}

// strict reads one JSON value without members that v does not have.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}

// topic is one kind of vectors.
type topic struct {
	name  string
	needs []string // the functions of an Implementation that it asks
	check func(Implementation, vector) error
}

// newTopic makes a topic from how its vectors are written. Got is the implementation's answer in the form of what is wanted, which
// it gets for what a vector leaves open; needs are the names of the functions that got calls.
func newTopic[In, Want any](name string, got func(i Implementation, in In, want Want) Want, needs ...string) topic {
	return topic{name, needs, func(i Implementation, v vector) error {
		var in In
		var want Want
		if err := errors.Join(strict(v.In, &in), strict(v.Want, &want)); err != nil {
			return fmt.Errorf("the vector cannot be read: %w", err)
		}
		return compare(want, func() Want { return got(i, in, want) })
	}}
}

// lacks returns the functions that i does not have of those that the topic asks.
func (t topic) lacks(i Implementation) (names []string) {
	for _, name := range t.needs {
		if reflect.ValueOf(i).FieldByName(name).IsNil() {
			names = append(names, name)
		}
	}
	return names
}

// absent says whether i has no function of the topic at all.
func (t topic) absent(i Implementation) bool { return len(t.lacks(i)) == len(t.needs) }

// incomplete is what is wrong with an implementation that has only some functions of the topic, or none although it is strict.
func (t topic) incomplete(i Implementation) string {
	missing := t.lacks(i)
	if len(missing) == 0 || t.absent(i) && !i.Strict {
		return ""
	}
	return "the implementation has no " + strings.Join(missing, " and no ")
}

// nothing is the failure of an implementation that has no function for any topic: a suite that runs nothing has not passed.
func nothing(i Implementation) []Failure {
	if i.Strict || slices.ContainsFunc(topics, func(t topic) bool { return !t.absent(i) }) {
		return nil
	}
	return []Failure{{"every topic", "no topic ran: the implementation has no function"}}
}

// compare compares by the JSON form, in which a message shows both.
func compare[Want any](want Want, answer func() Want) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	wanted, err := json.Marshal(want)
	if err != nil {
		return err
	}
	got, err := json.Marshal(answer())
	if err != nil {
		return err
	}
	if string(got) != string(wanted) {
		return fmt.Errorf("\nwant %.2000s\ngot  %.2000s", wanted, got)
	}
	return nil
}
