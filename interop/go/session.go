package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	routeTimeout  = 10 * time.Second
	routeInterval = 20 * time.Millisecond
)

// session is all that one driver process has running, by name.
type session struct {
	namesrv   string
	out       *output
	producers map[string]rocketmq.Producer
	pushers   map[string]rocketmq.PushConsumer
	pullers   map[string]rocketmq.PullConsumer
}

func newSession(namesrv string, out *output) *session {
	return &session{
		namesrv:   namesrv,
		out:       out,
		producers: map[string]rocketmq.Producer{},
		pushers:   map[string]rocketmq.PushConsumer{},
		pullers:   map[string]rocketmq.PullConsumer{},
	}
}

func (s *session) actions() map[string]action {
	return map[string]action{
		"start_producer": taking(s.startProducer),
		"send":           taking(s.send),
		"start_push":     taking(s.startPush),
		"lag":            taking(s.lag),
		"start_pull":     taking(s.startPull),
		"pull":           taking(s.pull),
		"pull_from":      taking(s.pullFrom),
		"poll":           taking(s.poll),
		"commit":         taking(s.commit),
		"stop":           taking(s.stop),
		"create_topic":   taking(s.createTopic),
		"delete_topic":   taking(s.deleteTopic),
		"topics":         taking(s.topics),
		"groups":         taking(s.groups),
		"queues":         taking(s.queues),
	}
}

type nameArgs struct {
	Name string `json:"name"`
}

func (s *session) stop(args nameArgs) (any, error) {
	if running, found := s.producers[args.Name]; found {
		delete(s.producers, args.Name)
		return nil, running.Shutdown()
	}
	if running, found := s.pushers[args.Name]; found {
		delete(s.pushers, args.Name)
		return nil, running.Shutdown()
	}
	if running, found := s.pullers[args.Name]; found {
		delete(s.pullers, args.Name)
		return nil, running.Shutdown()
	}
	return nil, fmt.Errorf("nothing is running as %s", args.Name)
}

// resolver gives every client object its own copy: the library sorts the list in place.
func (s *session) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{s.namesrv})
}

func (s *session) withAdmin(use func(context.Context, admin.Admin) (any, error)) (any, error) {
	tool, err := admin.NewAdmin(admin.WithResolver(s.resolver()))
	if err != nil {
		return nil, err
	}
	defer tool.Close()
	return use(context.Background(), tool)
}

// awaitRoute returns when the name server knows the topic: a broker registers a topic that a send
// made a moment after it acknowledged the send, and a Go consumer refuses to start before.
func (s *session) awaitRoute(topic string) error {
	_, err := s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		deadline := time.Now().Add(routeTimeout)
		for {
			_, err := tool.FetchPublishMessageQueues(ctx, topic)
			if err == nil || time.Now().After(deadline) {
				return nil, err
			}
			time.Sleep(routeInterval)
		}
	})
	return err
}
