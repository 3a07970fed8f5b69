package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type received struct {
	Topic          string            `json:"topic"`
	Body           []byte            `json:"body"`
	Properties     map[string]string `json:"properties"`
	MsgID          string            `json:"msgId"`
	OffsetMsgID    string            `json:"offsetMsgId"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	SysFlag        int32             `json:"sysFlag"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	StoreHost      string            `json:"storeHost"`
}

func describe(message *primitive.MessageExt) received {
	return received{
		Topic:          message.Topic,
		Body:           message.Body,
		Properties:     message.GetProperties(),
		MsgID:          message.MsgId,
		OffsetMsgID:    message.OffsetMsgId,
		QueueID:        message.Queue.QueueId,
		QueueOffset:    message.QueueOffset,
		SysFlag:        message.SysFlag,
		ReconsumeTimes: message.ReconsumeTimes,
		StoreHost:      message.StoreHost,
	}
}

func describeAll(messages []*primitive.MessageExt) []received {
	all := make([]received, len(messages))
	for i, message := range messages {
		all[i] = describe(message)
	}
	return all
}

type pushArgs struct {
	Name       string `json:"name"`
	Group      string `json:"group"`
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	SQL        bool   `json:"sql"`
	Orderly    bool   `json:"orderly"`
	Broadcast  bool   `json:"broadcast"`
	FromLast   bool   `json:"fromLast"`
	// Failures is how often every message is refused before it is taken.
	Failures      int32 `json:"failures"`
	ReconsumesMax int32 `json:"reconsumesMax"`
}

func (a pushArgs) options() []consumer.Option {
	from, model := consumer.ConsumeFromFirstOffset, consumer.Clustering
	if a.FromLast {
		from = consumer.ConsumeFromLastOffset
	}
	if a.Broadcast {
		model = consumer.BroadCasting
	}
	return []consumer.Option{
		consumer.WithGroupName(a.Group),
		consumer.WithInstance(a.Name),
		consumer.WithConsumerOrder(a.Orderly),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerModel(model),
		consumer.WithMaxReconsumeTimes(a.ReconsumesMax),
	}
}

func (a pushArgs) selector() consumer.MessageSelector {
	if a.SQL {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: a.Expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: a.Expression}
}

// handler reports every message; the library hands them over one at a time.
func (a pushArgs) handler(out *output) func(
	context.Context, ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	refusal := consumer.ConsumeRetryLater
	if a.Orderly {
		refusal = consumer.SuspendCurrentQueueAMoment
	}
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if len(messages) != 1 {
			return refusal, fmt.Errorf("%d messages at once", len(messages))
		}
		out.write(delivery{a.Name, describe(messages[0])})
		if messages[0].ReconsumeTimes < a.Failures {
			return refusal, nil
		}
		return consumer.ConsumeSuccess, nil
	}
}

func (s *session) startPush(args pushArgs) (any, error) {
	if err := s.awaitRoute(args.Topic); err != nil {
		return nil, err
	}
	options := append(args.options(), consumer.WithNsResolver(s.resolver()))
	created, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := created.Subscribe(args.Topic, args.selector(), args.handler(s.out)); err != nil {
		return nil, err
	}
	s.pushers[args.Name] = created
	return nil, created.Start()
}

// lag is how many messages a push consumer has got but not counted as consumed: it counts a message
// only a moment after the handler, which reported it, returned.
func (s *session) lag(args nameArgs) (any, error) {
	running, found := s.pushers[args.Name]
	if !found {
		return nil, fmt.Errorf("no push consumer %s", args.Name)
	}
	total := int64(0)
	for _, difference := range running.GetOffsetDiffMap() {
		total += difference
	}
	return total, nil
}
