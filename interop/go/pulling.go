package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var pullStatus = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

type pulled struct {
	Status    string     `json:"status"`
	Next      int64      `json:"next"`
	MinOffset int64      `json:"minOffset"`
	MaxOffset int64      `json:"maxOffset"`
	Messages  []received `json:"messages"`
}

func describePulled(result *primitive.PullResult) pulled {
	return pulled{
		Status:    pullStatus[result.Status],
		Next:      result.NextBeginOffset,
		MinOffset: result.MinOffset,
		MaxOffset: result.MaxOffset,
		Messages:  describeAll(result.GetMessageExts()),
	}
}

type pullerArgs struct {
	Name       string `json:"name"`
	Group      string `json:"group"`
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
}

// startPull leaves the library's options as they are: its background pulls then ask for 0 messages.
func (s *session) startPull(args pullerArgs) (any, error) {
	if err := s.awaitRoute(args.Topic); err != nil {
		return nil, err
	}
	created, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(s.resolver()),
		consumer.WithGroupName(args.Group),
		consumer.WithInstance(args.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: args.Expression}
	if err := created.Subscribe(args.Topic, selector); err != nil {
		return nil, err
	}
	s.pullers[args.Name] = created
	return nil, created.Start()
}

func (s *session) puller(name string) (rocketmq.PullConsumer, error) {
	if found, ok := s.pullers[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("no pull consumer %s", name)
}

type pullArgs struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// pull reads from the next queue in turn, from where the broker says that the group is.
func (s *session) pull(args pullArgs) (any, error) {
	from, err := s.puller(args.Name)
	if err != nil {
		return nil, err
	}
	result, err := from.Pull(context.Background(), args.Count)
	if err != nil {
		return nil, err
	}
	return describePulled(result), nil
}

type pullFromArgs struct {
	Name   string                 `json:"name"`
	Queue  primitive.MessageQueue `json:"queue"`
	Offset int64                  `json:"offset"`
	Count  int                    `json:"count"`
}

func (s *session) pullFrom(args pullFromArgs) (any, error) {
	from, err := s.puller(args.Name)
	if err != nil {
		return nil, err
	}
	result, err := from.PullFrom(context.Background(), &args.Queue, args.Offset, args.Count)
	if err != nil {
		return nil, err
	}
	return describePulled(result), nil
}

type pollArgs struct {
	Name      string `json:"name"`
	TimeoutMS int64  `json:"timeoutMs"`
}

// poll takes what the background pulls brought and acknowledges it.
func (s *session) poll(args pollArgs) (any, error) {
	from, err := s.puller(args.Name)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	batch, err := from.Poll(ctx, time.Duration(args.TimeoutMS)*time.Millisecond)
	if consumer.IsNoNewMsgError(err) {
		return []received{}, nil
	}
	if err != nil {
		return nil, err
	}
	from.ACK(ctx, batch, consumer.ConsumeSuccess)
	return describeAll(batch.GetMsgList()), nil
}

type commitArgs struct {
	Name  string `json:"name"`
	Topic string `json:"topic"`
}

func (s *session) commit(args commitArgs) (any, error) {
	from, err := s.puller(args.Name)
	if err != nil {
		return nil, err
	}
	return nil, from.PersistOffset(context.Background(), args.Topic)
}
