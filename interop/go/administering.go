package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

const groupsTimeout = 5 * time.Second

type topicArgs struct {
	Topic       string `json:"topic"`
	Broker      string `json:"broker"`
	ReadQueues  int    `json:"readQueues"`
	WriteQueues int    `json:"writeQueues"`
}

func (s *session) createTopic(args topicArgs) (any, error) {
	return s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		return nil, tool.CreateTopic(ctx,
			admin.WithTopicCreate(args.Topic),
			admin.WithBrokerAddrCreate(args.Broker),
			admin.WithReadQueueNums(args.ReadQueues),
			admin.WithWriteQueueNums(args.WriteQueues),
		)
	})
}

func (s *session) deleteTopic(args topicArgs) (any, error) {
	return s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		return nil, tool.DeleteTopic(ctx,
			admin.WithTopicDelete(args.Topic), admin.WithBrokerAddrDelete(args.Broker))
	})
}

func (s *session) topics(struct{}) (any, error) {
	return s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		list, err := tool.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return list.TopicList, nil
	})
}

func (s *session) groups(args topicArgs) (any, error) {
	return s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		found, err := tool.GetAllSubscriptionGroup(ctx, args.Broker, groupsTimeout)
		if err != nil {
			return nil, err
		}
		return found.SubscriptionGroupTable, nil
	})
}

func (s *session) queues(args topicArgs) (any, error) {
	if err := s.awaitRoute(args.Topic); err != nil {
		return nil, err
	}
	return s.withAdmin(func(ctx context.Context, tool admin.Admin) (any, error) {
		return tool.FetchPublishMessageQueues(ctx, args.Topic)
	})
}
