package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type producerArgs struct {
	Name  string `json:"name"`
	Group string `json:"group"`
}

type outgoing struct {
	Topic       string            `json:"topic"`
	Body        []byte            `json:"body"`
	Tag         string            `json:"tag"`
	Keys        []string          `json:"keys"`
	ShardingKey string            `json:"shardingKey"`
	DelayLevel  int               `json:"delayLevel"`
	Properties  map[string]string `json:"properties"`
}

type sendArgs struct {
	Producer string     `json:"producer"`
	Mode     string     `json:"mode"`
	Messages []outgoing `json:"messages"`
}

type sent struct {
	OK          bool   `json:"ok"`
	MsgID       string `json:"msgId"`
	OffsetMsgID string `json:"offsetMsgId"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
}

// evenSelector keeps a sharding key in one queue and deals everything else out in turn.
type evenSelector struct {
	sharded, dealt producer.QueueSelector
}

func (e evenSelector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string,
) *primitive.MessageQueue {
	if message.GetShardingKey() != "" {
		return e.sharded.Select(message, queues, lastBroker)
	}
	return e.dealt.Select(message, queues, lastBroker)
}

func (s *session) startProducer(args producerArgs) (any, error) {
	selector := evenSelector{producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector()}
	created, err := rocketmq.NewProducer(
		producer.WithNsResolver(s.resolver()),
		producer.WithGroupName(args.Group),
		producer.WithInstanceName(args.Name),
		producer.WithQueueSelector(selector),
	)
	if err != nil {
		return nil, err
	}
	s.producers[args.Name] = created
	return nil, created.Start()
}

func (s *session) send(args sendArgs) (any, error) {
	through, found := s.producers[args.Producer]
	if !found {
		return nil, fmt.Errorf("no producer %s", args.Producer)
	}
	messages := make([]*primitive.Message, len(args.Messages))
	for i, message := range args.Messages {
		messages[i] = message.build()
	}
	switch args.Mode {
	case "sync":
		return eachSync(through, messages)
	case "async":
		return allAsync(through, messages)
	case "one_way":
		return nil, eachOneWay(through, messages)
	case "batch":
		result, err := through.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return []sent{describeSent(result)}, nil
	}
	return nil, fmt.Errorf("no mode %s", args.Mode)
}

func (o outgoing) build() *primitive.Message {
	message := primitive.NewMessage(o.Topic, o.Body)
	for key, value := range o.Properties {
		message.WithProperty(key, value)
	}
	message.WithTag(o.Tag).WithKeys(o.Keys).WithShardingKey(o.ShardingKey)
	if o.DelayLevel > 0 {
		message.WithDelayTimeLevel(o.DelayLevel)
	}
	return message
}

func eachSync(through rocketmq.Producer, messages []*primitive.Message) (any, error) {
	results := make([]sent, len(messages))
	for i, message := range messages {
		result, err := through.SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results[i] = describeSent(result)
	}
	return results, nil
}

// allAsync has all messages under way before it waits for the first answer.
func allAsync(through rocketmq.Producer, messages []*primitive.Message) (any, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	outcomes := make([]chan outcome, len(messages))
	for i, message := range messages {
		// Room for two: the library calls back twice when the request failed.
		done := make(chan outcome, 2)
		outcomes[i] = done
		report := func(_ context.Context, result *primitive.SendResult, err error) {
			done <- outcome{result, err}
		}
		if err := through.SendAsync(context.Background(), report, message); err != nil {
			return nil, err
		}
	}
	results := make([]sent, len(messages))
	for i := range outcomes {
		done := <-outcomes[i]
		if done.err != nil {
			return nil, done.err
		}
		results[i] = describeSent(done.result)
	}
	return results, nil
}

func eachOneWay(through rocketmq.Producer, messages []*primitive.Message) error {
	for _, message := range messages {
		if err := through.SendOneWay(context.Background(), message); err != nil {
			return err
		}
	}
	return nil
}

func describeSent(result *primitive.SendResult) sent {
	return sent{
		OK:          result.Status == primitive.SendOK,
		MsgID:       result.MsgID,
		OffsetMsgID: result.OffsetMsgID,
		QueueID:     result.MessageQueue.QueueId,
		QueueOffset: result.QueueOffset,
	}
}
