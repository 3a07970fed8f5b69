// Command driver runs the unmodified Go client for the tests.
//
// Every line on stdin is a command {"id", "do", "args"}; every line on stdout is either its answer
// {"id", "ok"} or {"id", "error"}, or a message that a push consumer got {"consumer", "message"}.
// One process holds any number of producers and consumers by their names. It ends with its stdin.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

const lineBytesMax = 64 << 20

type command struct {
	ID   int             `json:"id"`
	Do   string          `json:"do"`
	Args json.RawMessage `json:"args"`
}

type answer struct {
	ID    int    `json:"id"`
	OK    any    `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
}

type delivery struct {
	Consumer string   `json:"consumer"`
	Message  received `json:"message"`
}

// output keeps lines whole: consumers write from goroutines of their own.
type output struct {
	mutex sync.Mutex
	lines *json.Encoder
}

func (o *output) write(line any) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if err := o.lines.Encode(line); err != nil {
		panic(err)
	}
}

type action func(json.RawMessage) (any, error)

// taking makes an action of a function with typed arguments; a misspelt one is an error.
func taking[A any](run func(A) (any, error)) action {
	return func(raw json.RawMessage) (any, error) {
		var args A
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&args); err != nil {
			return nil, err
		}
		return run(args)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: driver <name server address>")
		os.Exit(2)
	}
	out := &output{lines: json.NewEncoder(os.Stdout)}
	actions := newSession(os.Args[1], out).actions()
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, lineBytesMax)
	for input.Scan() {
		var next command
		if err := json.Unmarshal(input.Bytes(), &next); err != nil {
			panic(err)
		}
		out.write(perform(actions, next))
	}
}

func perform(actions map[string]action, next command) answer {
	run, known := actions[next.Do]
	if !known {
		return answer{ID: next.ID, Error: "unknown command " + next.Do}
	}
	result, err := run(next.Args)
	if err != nil {
		return answer{ID: next.ID, Error: err.Error()}
	}
	return answer{ID: next.ID, OK: result}
}
